#include "directory.h"

#include <fcntl.h>
#include <unistd.h>

#include "region/own_filesystem.h"
#include "region/region.h"

namespace vgpu::node {

namespace {

constexpr unsigned kAdmissionDeadline_ms = 10'000;

}  // namespace

Error DirectoryLock::acquire(const std::string &path, unsigned deadline_ms, DirectoryLock *lock) {
  lock->fd_ = ScopedFd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock->fd_) return system_error("cannot open %s", path.c_str());
  return FileLock::acquire(lock->fd_.get(), 0, deadline_ms, &lock->lock_);
}

Error RegionDirectory::remove_job(const std::string &name) const {
  return region::Region::remove(path_.c_str(), name.c_str());
}

Error RegionDirectory::lock_admission(DirectoryLock *lock) const {
  return DirectoryLock::acquire(entry(region::kAdmissionLockName), kAdmissionDeadline_ms, lock);
}

Error RegionDirectory::lock_node(unsigned deadline_ms, DirectoryLock *lock) const {
  return DirectoryLock::acquire(entry(region::kNodeLockName), deadline_ms, lock);
}

bool is_job_id(const std::string &name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

std::string job_of_entry(const std::string &name) {
  const std::string job = name.starts_with(region::kGpusPrefix) ? name.substr(sizeof region::kGpusPrefix - 1) : name;
  return is_job_id(job) ? job : "";
}

bool is_leftover(const std::string &name) {
  return name.starts_with(region::kNewPrefix) || name.starts_with(region::kOldPrefix) ||
         name.starts_with(region::kTemporaryPrefix);
}

void remove_leftover(int parent, const char *name) {
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) {
    const ScopedDirectory directory(fdopendir(fd));
    while (const dirent *entry = directory ? readdir(directory.get()) : nullptr) {
      const std::string inside = entry->d_name;
      if (inside != "." && inside != "..") region::remove_entry(fd, entry->d_name);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
  } else {
    unlinkat(parent, name, 0);
  }
}

}  // namespace vgpu::node
