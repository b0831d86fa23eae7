#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace vgpu {

namespace {

// FNV-1a: guards against accidents, not against attackers; those are kept out by the files' owners and modes.
std::uint64_t fnv1a(std::uint64_t hash, const void *data, std::size_t size) {
  const auto *bytes = static_cast<const unsigned char *>(data);
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325u;

std::uint64_t header_checksum(const FileHeader &header) {
  FileHeader copy = header;
  copy.checksum = 0;
  return fnv1a(kFnvStart, &copy, sizeof copy);
}

bool is_trusted(uid_t owner, Trust trust) { return owner == 0 || (trust == Trust::root_or_self && owner == geteuid()); }

struct Checked {
  const char *directory;
  const char *name;
};

Error open_checked(int directory_fd, const Checked &what, int access, ScopedFd *fd, struct statx *status) {
  // O_NONBLOCK: a fifo in the file's place must not hang us before we see that it is one.
  *fd = ScopedFd(openat(directory_fd, what.name, access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!*fd) {
    if (errno == ELOOP) {
      return make_error(Fault::symlink, "vgpu: %s/%s is a symbolic link; remove the region and create it anew",
                        what.directory, what.name);
    }
    const Fault fault = errno == ENOENT ? Fault::not_found : Fault::system;
    Error error = system_error("vgpu: cannot open %s/%s", what.directory, what.name);
    error.fault = fault;
    return error;
  }
  if (statx(fd->get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, status) != 0) {
    return system_error("vgpu: cannot stat %s/%s", what.directory, what.name);
  }
  if (!S_ISREG(status->stx_mode)) {
    return make_error(Fault::foreign, "vgpu: %s/%s is not a regular file", what.directory, what.name);
  }
  if ((status->stx_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return make_error(Fault::writable, "vgpu: %s/%s may be written by others than its owner (mode %03o)",
                      what.directory, what.name, status->stx_mode & 0777u);
  }
  return {};
}

Error check_header(const Checked &what, const char *magic, const struct statx &status, int fd, FileHeader *header) {
  const ssize_t length = pread(fd, header, sizeof *header, 0);
  if (length < 0) return system_error("vgpu: cannot read %s/%s", what.directory, what.name);
  if (length != static_cast<ssize_t>(sizeof *header)) {
    return make_error(Fault::truncated, "vgpu: %s/%s is cut off within its header (%zd bytes)", what.directory,
                      what.name, length);
  }
  if (std::memcmp(header->magic, magic, sizeof header->magic) != 0) {
    return make_error(Fault::foreign, "vgpu: %s/%s is not a slurm-vgpu file of this kind", what.directory, what.name);
  }
  if (header->layout != kLayoutVersion) {
    const bool newer = header->layout > kLayoutVersion;
    return make_error(newer ? Fault::newer : Fault::older, "vgpu: %s/%s has layout version %u, this is version %u; %s",
                      what.directory, what.name, header->layout, kLayoutVersion,
                      newer ? "update libvgpu on this node" : "end the job that was started before the update");
  }
  if (header->ndev == 0 || header->ndev > kMaxDevices || header->slots != kSlots) {
    return make_error(Fault::corrupt, "vgpu: %s/%s claims %u devices and %u slots; its header is corrupted",
                      what.directory, what.name, header->ndev, header->slots);
  }
  if (status.stx_size != header->file_size) {
    return make_error(Fault::truncated, "vgpu: %s/%s has %llu bytes instead of %llu", what.directory, what.name,
                      static_cast<unsigned long long>(status.stx_size),
                      static_cast<unsigned long long>(header->file_size));
  }
  return {};
}

Error corrupt_error(const Checked &what, const char *why) {
  return make_error(Fault::corrupt, "vgpu: %s/%s is corrupted: %s", what.directory, what.name, why);
}

// `limits` as a whole is small, but its devices vary: the checksum is fed in pieces.
Error check_limits_body(const Checked &what, int fd, const FileHeader &header, JobIdentity *job) {
  if (header.file_size != limits_size(header.ndev)) return corrupt_error(what, "its size does not fit its devices");
  if (pread(fd, job, sizeof *job, offsetof(LimitsFile, job)) != static_cast<ssize_t>(sizeof *job)) {
    return corrupt_error(what, "it cannot be read to its end");
  }
  std::uint64_t hash = fnv1a(header_checksum(header), job, sizeof *job);
  for (unsigned dev = 0; dev < header.ndev; ++dev) {
    DeviceIdentity identity;
    const std::size_t offset =
        offsetof(LimitsFile, devices) + dev * sizeof(DeviceLimits) + offsetof(DeviceLimits, identity);
    if (pread(fd, &identity, sizeof identity, static_cast<off_t>(offset)) != static_cast<ssize_t>(sizeof identity)) {
      return corrupt_error(what, "it cannot be read to its end");
    }
    hash = fnv1a(hash, &identity, sizeof identity);
  }
  if (hash != header.checksum) return corrupt_error(what, "its checksum is wrong");
  return {};
}

}  // namespace

std::uint64_t limits_checksum(const LimitsFile &limits) {
  std::uint64_t hash = fnv1a(header_checksum(limits.header), &limits.job, sizeof limits.job);
  for (unsigned dev = 0; dev < limits.header.ndev; ++dev) {
    hash = fnv1a(hash, &limits.devices[dev].identity, sizeof(DeviceIdentity));
  }
  return hash;
}

std::uint64_t usage_checksum(const FileHeader &header) { return header_checksum(header); }

Error open_region(const char *directory, Trust trust, int limits_access, int usage_access, RegionFiles *files) {
  const ScopedFd directory_fd(open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory_fd) {
    if (errno == ENOENT) return make_error(Fault::not_found, "vgpu: there is no region %s", directory);
    if (errno == ELOOP || errno == ENOTDIR) {
      return make_error(Fault::symlink, "vgpu: %s is not a directory of its own (a link or a file)", directory);
    }
    return system_error("vgpu: cannot open region %s", directory);
  }
  struct statx status;
  if (statx(directory_fd.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status) != 0) {
    return system_error("vgpu: cannot stat region %s", directory);
  }
  if (!is_trusted(status.stx_uid, trust)) {
    return make_error(Fault::wrong_owner, "vgpu: region %s belongs to uid %u, not to root", directory, status.stx_uid);
  }
  if ((status.stx_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return make_error(Fault::writable, "vgpu: region %s may be written by others than its owner (mode %03o)", directory,
                      status.stx_mode & 0777u);
  }

  const Checked limits = {directory, "limits"};
  FileHeader limits_header;
  if (Error error = open_checked(directory_fd.get(), limits, limits_access, &files->limits, &status)) return error;
  if (!is_trusted(status.stx_uid, trust)) {
    return make_error(Fault::wrong_owner, "vgpu: %s/limits belongs to uid %u, not to root", directory, status.stx_uid);
  }
  files->owner = status.stx_uid;
  if (Error error = check_header(limits, kLimitsMagic, status, files->limits.get(), &limits_header)) return error;
  JobIdentity job;
  if (Error error = check_limits_body(limits, files->limits.get(), limits_header, &job)) return error;

  const Checked usage = {directory, "usage"};
  FileHeader usage_header;
  if (Error error = open_checked(directory_fd.get(), usage, usage_access, &files->usage, &status)) return error;
  if (status.stx_uid != job.uid) {
    return make_error(Fault::wrong_owner, "vgpu: %s/usage belongs to uid %u, but the job is uid %u's", directory,
                      status.stx_uid, job.uid);
  }
  if (Error error = check_header(usage, kUsageMagic, status, files->usage.get(), &usage_header)) return error;
  if (usage_header.checksum != usage_checksum(usage_header)) return corrupt_error(usage, "its checksum is wrong");
  if (usage_header.ndev != limits_header.ndev || usage_header.file_size != usage_size(limits_header.ndev) ||
      std::memcmp(usage_header.id, limits_header.id, sizeof usage_header.id) != 0) {
    return corrupt_error(usage, "it does not belong to the limits beside it");
  }
  files->usage_identity = {std::uint64_t{status.stx_dev_major} << 32 | status.stx_dev_minor, status.stx_ino};
  files->ndev = limits_header.ndev;
  return {};
}

ScopedFd reopen_usage(const UsagePath &path, int access) {
  const ScopedFd directory_fd(open(path.directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory_fd) return {};
  ScopedFd fd(openat(directory_fd.get(), "usage", access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct statx status;
  if (!fd || statx(fd.get(), "", AT_EMPTY_PATH, STATX_INO, &status) != 0) return {};
  const FileIdentity identity = {std::uint64_t{status.stx_dev_major} << 32 | status.stx_dev_minor, status.stx_ino};
  if (!(identity == path.identity)) return {};
  return fd;
}

}  // namespace vgpu
