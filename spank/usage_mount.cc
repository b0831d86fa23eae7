#include "usage_mount.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "region/names.h"
#include "region/own_filesystem.h"

namespace vgpu::spank {

namespace {

// As in linux/mount.h and asm/unistd.h, which may be older than the kernel that we run on. The numbers are the same on all
// architectures.
constexpr long kOpenTree = 428;
constexpr long kMoveMount = 429;
constexpr unsigned kClone = 1;          // OPEN_TREE_CLONE
constexpr unsigned kFromEmptyPath = 4;  // MOVE_MOUNT_F_EMPTY_PATH

std::string usage_file(const node::SiteConfig &config, std::uint32_t job_id) {
  return config.directory().job(job_id).path() + "/" + region::kUsageName;
}

bool is_missing(const std::string &file) {
  struct stat status;
  return lstat(file.c_str(), &status) == 0 && region::is_uncovered(status);
}

}  // namespace

bool can_carry_mounts() {
  const ScopedFd tree(static_cast<int>(syscall(kOpenTree, AT_FDCWD, "/", O_CLOEXEC)));
  return static_cast<bool>(tree);
}

ScopedFd hold_usage(const node::SiteConfig &config, std::uint32_t job_id) {
  const std::string file = usage_file(config, job_id);
  return ScopedFd(static_cast<int>(syscall(kOpenTree, AT_FDCWD, file.c_str(), kClone | O_CLOEXEC)));
}

Error show_usage(const node::SiteConfig &config, std::uint32_t job_id, const ScopedFd &usage) {
  const std::string file = usage_file(config, job_id);
  if (!is_missing(file)) return {};
  // Another task of the step may have been faster, in the same namespace: then it is there.
  errno = ENOENT;
  if (usage) syscall(kMoveMount, usage.get(), "", AT_FDCWD, file.c_str(), kFromEmptyPath);
  const int reason = errno;
  if (!is_missing(file)) return {};
  errno = reason;
  return system_error("%s is not mounted in this job's namespace, and cannot be; end the job, or set usage_room=shared",
                      file.c_str());
}

}  // namespace vgpu::spank
