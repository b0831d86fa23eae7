#include "private_region.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "directory.h"
#include "region/liveness.h"

namespace vgpu::node {

namespace {

ScopedFd open_directory(const std::string &path) {
  return ScopedFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Nobody holds it longer than it takes to make or remove some small files.
Error lock_directory(const std::string &path, ScopedFd *lock) {
  *lock = open_directory(path);
  while (*lock && flock(lock->get(), LOCK_EX) != 0) {
    if (errno != EINTR) *lock = ScopedFd();
  }
  if (!*lock) return system_error("cannot lock %s", path.c_str());
  return {};
}

// In /tmp anybody could have put something else in its place.
Error make_parent(const std::string &path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error("cannot create %s", path.c_str());
  const ScopedFd directory = open_directory(path);
  if (!directory) {
    if (errno == ELOOP || errno == ENOTDIR) {
      return make_error(Fault::symlink, "%s is a link or a file, not a directory of yours; have it removed",
                        path.c_str());
    }
    return system_error("cannot open %s", path.c_str());
  }
  struct stat status;
  if (fstat(directory.get(), &status) != 0) return system_error("cannot stat %s", path.c_str());
  if (status.st_uid != geteuid()) {
    return make_error(Fault::wrong_owner, "%s belongs to uid %u, not to you; have it removed", path.c_str(),
                      status.st_uid);
  }
  // The umask may have taken bits away, an earlier chmod may have added some.
  if (fchmod(directory.get(), 0700) != 0) return system_error("cannot set the mode of %s", path.c_str());
  return {};
}

bool is_abandoned(const std::string &path) {
  const ScopedFd directory = open_directory(path);
  return directory && flock(directory.get(), LOCK_EX | LOCK_NB) == 0;
}

// Under the parent's lock: whatever nobody holds was left by a vgpu-run that was killed, half-made ones included.
std::vector<std::string> abandoned_in(const std::string &parent) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto &entry : std::filesystem::directory_iterator(parent, ignored)) {
    if (is_region_name(entry.path().filename()) && is_abandoned(entry.path())) found.push_back(entry.path());
  }
  return found;
}

// Failures are nobody's trouble today: the next one tries again.
void remove_all(const std::vector<std::string> &paths) {
  std::error_code ignored;
  for (const std::string &path : paths) std::filesystem::remove_all(path, ignored);
}

}  // namespace

std::string private_directory(const std::string &runtime_directory) {
  return runtime_directory + "/vgpu-" + std::to_string(geteuid());
}

bool is_own_directory(const std::string &path) {
  const ScopedFd directory = open_directory(path);
  struct stat status;
  return directory && fstat(directory.get(), &status) == 0 && status.st_uid == geteuid();
}

bool is_region_name(const std::string &name) {
  if (is_leftover(name)) return true;
  const std::size_t dash = name.find('-');
  return dash != 0 && dash != std::string::npos && dash + 1 < name.size() &&
         name.find_first_not_of("0123456789") == dash &&
         name.find_first_not_of("0123456789", dash + 1) == std::string::npos;
}

std::string runtime_directory(const char *given) {
  struct stat status;
  if (given != nullptr && given[0] == '/' && stat(given, &status) == 0 && S_ISDIR(status.st_mode) &&
      status.st_uid == geteuid() && access(given, W_OK | X_OK) == 0) {
    return given;
  }
  return "/tmp";
}

Error find_abandoned(const std::string &runtime_directory, Leftovers leftovers, std::vector<std::string> *paths) {
  const std::string parent = private_directory(runtime_directory);
  if (access(parent.c_str(), F_OK) != 0) return {};
  if (Error error = make_parent(parent)) return error;
  ScopedFd lock;
  if (Error error = lock_directory(parent, &lock)) return error;
  *paths = abandoned_in(parent);
  if (leftovers == Leftovers::remove) remove_all(*paths);
  return {};
}

Error PrivateRegion::open_parent(const std::string &runtime_directory) {
  parent_ = private_directory(runtime_directory);
  if (Error error = make_parent(parent_)) return error;
  if (Error error = lock_directory(parent_, &parent_lock_)) return error;
  remove_all(abandoned_in(parent_));
  return {};
}

Error PrivateRegion::create(const region::RegionSpec &spec) {
  const region::SelfIdentity self = region::identify_self();
  const std::string name = std::to_string(self.pid) + "-" + std::to_string(self.start_time);
  if (parent_.size() + 1 + name.size() >= sizeof(region::RegionPath)) {
    return make_error(Fault::invalid, "%s is too long for a region; set XDG_RUNTIME_DIR to a shorter path",
                      parent_.c_str());
  }
  if (Error error = region::Region::create(parent_.c_str(), name.c_str(), spec)) return error;
  name_ = name;
  if (Error error = lock_directory(path(), &lock_)) return error;
  parent_lock_ = ScopedFd();
  return {};
}

void PrivateRegion::remove() {
  if (name_.empty()) return;
  // After a failed create() we still have the lock, and would wait for ourselves.
  const Error no_lock = parent_lock_ ? Error() : lock_directory(parent_, &parent_lock_);
  const Error left = no_lock ? no_lock : region::Region::remove(parent_.c_str(), name_.c_str());
  (void)left;
  name_.clear();
}

}  // namespace vgpu::node
