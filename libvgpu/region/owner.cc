#include "owner.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/scoped.h"

namespace vgpu::region {

UserMap::UserMap() {
  char text[2048] = "";
  const ScopedFd fd(open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
  if (const ssize_t length = fd ? read(fd.get(), text, sizeof text - 1) : 0; length > 0) text[length] = '\0';
  // Three numbers a line: first uid inside, first uid outside, how many.
  for (char *at = text; count_ < kMaxRanges;) {
    unsigned long numbers[3];
    for (unsigned long &number : numbers) {
      char *end = at;
      number = std::strtoul(at, &end, 10);
      if (end == at) {
        if (count_ == 0) ranges_[count_++] = {0, 0, ~0u};
        return;
      }
      at = end;
    }
    ranges_[count_++] = {static_cast<unsigned>(numbers[0]), static_cast<unsigned>(numbers[1]),
                         static_cast<unsigned>(numbers[2])};
  }
}

uid_t UserMap::outside(uid_t inside) const {
  for (unsigned i = 0; i < count_; ++i) {
    if (inside >= ranges_[i].inside && inside - ranges_[i].inside < ranges_[i].count) {
      return ranges_[i].outside + (inside - ranges_[i].inside);
    }
  }
  return kUnmappedUser;
}

bool UserMap::maps_root() const {
  for (unsigned i = 0; i < count_; ++i) {
    if (ranges_[i].outside == 0 && ranges_[i].count > 0) return true;
  }
  return false;
}

Trust trust_here() { return std::getenv("SLURM_JOB_ID") != nullptr ? Trust::root : Trust::root_or_self; }

// Where root has no name, root's files look like nobody's. So do those of every other stranger: but of the path that the
// job was given, only root could be the stranger.
bool is_trusted(uid_t owner, Trust trust, const UserMap &users) {
  const uid_t outside = users.outside(owner);
  if (outside == 0 || (outside == kUnmappedUser && !users.maps_root())) return true;
  return trust == Trust::root_or_self && outside == users.outside(geteuid());
}

}  // namespace vgpu::region
