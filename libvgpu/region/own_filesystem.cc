#include "own_filesystem.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace vgpu::region {

namespace {

constexpr char kMountPlace[] = ".room";  // where the file system is mounted until the file alone is

// mount(2) knows no descriptors.
struct PathThroughFd {
  char text[320];

  PathThroughFd(int directory_fd, const char *name, const char *more = "") {
    std::snprintf(text, sizeof text, "/proc/self/fd/%d/%s%s", directory_fd, name, more);
  }
};

Error make_placeholder(int directory_fd, const char *name) {
  const ScopedFd place(openat(directory_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0));
  if (!place) return system_error("cannot create %s", name);
  return {};
}

Error mount_room(int directory_fd, std::size_t size) {
  if (mkdirat(directory_fd, kMountPlace, 0700) != 0) return system_error("cannot create %s", kMountPlace);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  char options[96];
  // The directory, the file, and what some kernels count as inodes beside them.
  std::snprintf(options, sizeof options, "mode=0700,nr_inodes=4,size=%zu", (size + page - 1) / page * page);
  if (mount("vgpu", PathThroughFd(directory_fd, kMountPlace).text, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
            options) != 0) {
    return system_error("cannot mount a tmpfs of %zu bytes", size);
  }
  return {};
}

Error make_file_in_room(int directory_fd, const char *name, std::size_t size, ScopedFd *file) {
  const ScopedFd room(openat(directory_fd, kMountPlace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!room) return system_error("cannot open %s", kMountPlace);
  *file = ScopedFd(openat(room.get(), name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!*file) return system_error("cannot create %s", name);
  int reason = 0;
  do {
    reason = posix_fallocate(file->get(), 0, static_cast<off_t>(size));
  } while (reason == EINTR);
  errno = reason;
  if (reason != 0) return system_error("cannot get %zu bytes for %s", size, name);
  if (fchmod(file->get(), 0600) != 0) return system_error("cannot set the mode of %s", name);
  char source[64];
  std::snprintf(source, sizeof source, "/%s", name);
  if (mount(PathThroughFd(directory_fd, kMountPlace, source).text, PathThroughFd(directory_fd, name).text, nullptr,
            MS_BIND, nullptr) != 0) {
    return system_error("cannot mount %s", name);
  }
  return {};
}

}  // namespace

Error make_on_own_filesystem(int directory_fd, const char *name, std::size_t size, ScopedFd *file) {
  Error error = make_placeholder(directory_fd, name);
  if (!error) error = mount_room(directory_fd, size);
  if (!error) error = make_file_in_room(directory_fd, name, size, file);
  remove_entry(directory_fd, kMountPlace);
  if (error) {
    *file = ScopedFd();
    remove_entry(directory_fd, name);
  }
  return error;
}

bool remove_entry(int directory_fd, const char *name) {
  // Who was killed at the wrong moment may have left one mount over another.
  constexpr int kMostMounts = 16;
  for (int i = 0; i < kMostMounts; ++i) {
    if (unlinkat(directory_fd, name, 0) == 0) return true;
    if (errno == EISDIR && unlinkat(directory_fd, name, AT_REMOVEDIR) == 0) return true;
    if (errno != EBUSY) return false;
    if (umount2(PathThroughFd(directory_fd, name).text, MNT_DETACH | UMOUNT_NOFOLLOW) != 0) return false;
  }
  return false;
}

bool is_uncovered(const struct stat &status) {
  return S_ISREG(status.st_mode) && (status.st_mode & 0777) == 0 && status.st_size == 0 && status.st_uid == 0;
}

}  // namespace vgpu::region
