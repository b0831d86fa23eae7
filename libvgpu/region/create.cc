// Region::create and Region::remove: a region appears whole and disappears whole.
#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/file_status.h"
#include "files.h"
#include "names.h"
#include "own_filesystem.h"

namespace vgpu::region {

namespace {

// A random name that no job id can be: creators and removers at work never meet.
struct TemporaryName {
  char text[32];

  Error draw(const char *prefix) {
    std::uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return system_error("no random numbers");
    std::snprintf(text, sizeof text, "%s%016llx", prefix, static_cast<unsigned long long>(random));
    return {};
  }
};

Error check_name(const char *name) {
  const std::size_t length = std::strlen(name);
  if (length == 0 || length > 200 || name[0] == '.' || std::strchr(name, '/') != nullptr) {
    return make_error(Fault::invalid, "'%s' cannot name a region; use the job id", name);
  }
  return {};
}

Error check_spec(const RegionSpec &spec) {
  if (spec.ndev == 0 || spec.ndev > kMaxDevices) {
    return make_error(Fault::invalid, "a region has 1 to %u devices, not %u", kMaxDevices, spec.ndev);
  }
  if (geteuid() != 0 && spec.uid != geteuid()) {
    return make_error(Fault::invalid, "only root can make a region for another user (uid %u)", spec.uid);
  }
  for (unsigned dev = 0; dev < spec.ndev; ++dev) {
    if (Error error = check_memory_limit(spec.devices[dev].memory_limit)) return error;
    if (Error error = check_sm_percent(spec.devices[dev].sm_percent)) return error;
  }
  return {};
}

Error open_parent(const char *parent, ScopedFd *fd) {
  *fd = ScopedFd(open(parent, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!*fd) return system_error("cannot open the region directory %s", parent);
  struct stat status;
  if (!file_status(fd->get(), &status)) {
    return system_error("cannot stat the region directory %s", parent);
  }
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    return make_error(Fault::wrong_owner, "the region directory %s belongs to uid %u; chown it to root", parent,
                      status.st_uid);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return make_error(Fault::writable, "the region directory %s may be written by others (mode %03o); chmod 0755",
                      parent, status.st_mode & 0777u);
  }
  return {};
}

// A file of `size` bytes, all of them really there: on a full tmpfs creation fails, not a rank by SIGBUS later.
Error make_file(int directory_fd, const char *name, std::size_t size, mode_t mode, ScopedFd *fd) {
  *fd = ScopedFd(openat(directory_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!*fd) return system_error("cannot create %s", name);
  int reason = 0;
  do {
    reason = posix_fallocate(fd->get(), 0, static_cast<off_t>(size));
  } while (reason == EINTR);
  if (reason != 0) {
    errno = reason;
    return system_error("cannot get %zu bytes for %s", size, name);
  }
  // fchmod, because the umask is the caller's business.
  if (fchmod(fd->get(), mode) != 0) return system_error("cannot set the mode of %s", name);
  return {};
}

FileHeader make_header(const char *magic, unsigned ndev, std::size_t size, const std::uint8_t (&id)[16]) {
  FileHeader header = {};
  std::memcpy(header.magic, magic, sizeof header.magic);
  header.layout = kLayoutVersion;
  header.ndev = ndev;
  header.file_size = size;
  header.slots = kSlots;
  std::memcpy(header.id, id, sizeof header.id);
  header.created = static_cast<std::uint64_t>(std::time(nullptr));
  return header;
}

void fill_device(const DeviceSpec &spec, DeviceLimits *device) {
  constexpr auto relaxed = std::memory_order_relaxed;  // nobody else has the file yet
  device->memory_bytes.store(spec.memory_limit, relaxed);
  device->sm_percent.store(spec.sm_percent, relaxed);
  device->context.store(ContextWord{spec.context.bytes, static_cast<std::uint64_t>(spec.context.source)}.pack(),
                        relaxed);
  device->block_bytes.store(spec.block_bytes, relaxed);
  device->usable_bytes.store(spec.usable_bytes, relaxed);
  device->identity = spec.identity;
  if (spec.context.bytes != 0) device->identity.context_mib = static_cast<std::uint32_t>(spec.context.bytes >> 20);
}

Error write_limits(int directory_fd, const RegionSpec &spec, const std::uint8_t (&id)[16]) {
  const std::size_t size = limits_size(spec.ndev);
  ScopedFd fd;
  if (Error error = make_file(directory_fd, kLimitsName, size, 0644, &fd)) return error;
  const ScopedMapping mapping(fd.get(), size, PROT_READ | PROT_WRITE);
  if (!mapping) return system_error("cannot map limits");
  auto &limits = *static_cast<LimitsFile *>(mapping.get());
  limits.header = make_header(kLimitsMagic, spec.ndev, size, id);
  limits.job = {spec.job_id, UserMap().outside(spec.uid), spec.launch_hooks ? 1u : 0u};
  for (unsigned dev = 0; dev < spec.ndev; ++dev) fill_device(spec.devices[dev], &limits.devices[dev]);
  limits.header.checksum = limits_checksum(limits.header, limits.job, limits.devices);
  return {};
}

Error write_usage(int directory_fd, const RegionSpec &spec, const std::uint8_t (&id)[16]) {
  const std::size_t size = usage_size(spec.ndev);
  ScopedFd fd;
  Error error = spec.own_room ? make_on_own_filesystem(directory_fd, kUsageName, size, &fd)
                              : make_file(directory_fd, kUsageName, size, 0600, &fd);
  if (error) return error;
  FileHeader header = make_header(kUsageMagic, spec.ndev, size, id);
  header.checksum = usage_checksum(header);
  if (pwrite(fd.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    return system_error("cannot write usage");
  }
  if (geteuid() == 0 && fchown(fd.get(), spec.uid, static_cast<gid_t>(-1)) != 0) {
    return system_error("cannot give usage to uid %u", spec.uid);
  }
  return {};
}

// Only what lies directly inside; a region's directory has no others. False: something is left, see errno.
bool remove_directory(int parent_fd, const char *name) {
  const int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return unlinkat(parent_fd, name, 0) == 0;
  DIR *directory = fdopendir(fd);  // owns fd
  if (directory == nullptr) {
    close(fd);
    return false;
  }
  while (const dirent *entry = readdir(directory)) {
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
      remove_entry(dirfd(directory), entry->d_name);
    }
  }
  closedir(directory);
  return unlinkat(parent_fd, name, AT_REMOVEDIR) == 0;
}

Error fill_directory(int parent_fd, const char *name, const RegionSpec &spec) {
  const ScopedFd directory(openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return system_error("cannot open the new region");
  std::uint8_t id[16];
  if (getrandom(id, sizeof id, 0) != sizeof id) return system_error("no random numbers");
  if (Error error = write_limits(directory.get(), spec, id)) return error;
  if (Error error = write_usage(directory.get(), spec, id)) return error;
  ScopedFd lock;  // see change_limits()
  if (Error error = make_file(directory.get(), kLockName, 1, 0600, &lock)) return error;
  const mode_t mode = geteuid() == 0 ? 0755 : 0700;
  if (fchmod(directory.get(), mode) != 0) return system_error("cannot open the new region to its job");
  return {};
}

}  // namespace

Error Region::create(const char *parent, const char *name, const RegionSpec &spec) {
  if (Error error = check_name(name)) return error;
  if (Error error = check_spec(spec)) return error;
  ScopedFd parent_fd;
  if (Error error = open_parent(parent, &parent_fd)) return error;

  TemporaryName temporary;
  if (Error error = temporary.draw(kNewPrefix)) return error;
  // The umask is the caller's business: it must not lock us out of our own directory.
  if (mkdirat(parent_fd.get(), temporary.text, 0700) != 0 || fchmodat(parent_fd.get(), temporary.text, 0700, 0) != 0) {
    return system_error("cannot create a region in %s", parent);
  }
  Error error = fill_directory(parent_fd.get(), temporary.text, spec);
  if (!error && renameat2(parent_fd.get(), temporary.text, parent_fd.get(), name, RENAME_NOREPLACE) != 0) {
    error = errno == EEXIST ? make_error(Fault::exists, "region %s/%s exists already", parent, name)
                            : system_error("cannot put region %s/%s in place", parent, name);
  }
  if (error) remove_directory(parent_fd.get(), temporary.text);
  return error;
}

Error Region::remove(const char *parent, const char *name) {
  if (Error error = check_name(name)) return error;
  ScopedFd parent_fd;
  if (Error error = open_parent(parent, &parent_fd)) return error;
  // First out of sight in one step: the same job id can start anew while this one's files are still being deleted.
  TemporaryName temporary;
  if (Error error = temporary.draw(kOldPrefix)) return error;
  if (renameat2(parent_fd.get(), name, parent_fd.get(), temporary.text, RENAME_NOREPLACE) != 0) {
    if (errno == ENOENT) return {};
    return system_error("cannot remove region %s/%s", parent, name);
  }
  if (!remove_directory(parent_fd.get(), temporary.text)) {
    return system_error("cannot delete all of the removed region %s/%s", parent, temporary.text);
  }
  return {};
}

}  // namespace vgpu::region
