#include "files.h"
#include "names.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file_status.h"

namespace vgpu::region {

namespace {

// FNV-1a: guards against accidents, not against attackers; those are kept out by the files' owners and modes.
std::uint64_t fnv1a(std::uint64_t hash, const void *data, std::size_t size) {
  const auto *bytes = static_cast<const unsigned char *>(data);
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325u;
constexpr std::size_t kMaxPath = sizeof(RegionPath) - 1;

std::uint64_t header_checksum(const FileHeader &header) {
  FileHeader copy = header;
  copy.checksum = 0;
  return fnv1a(kFnvStart, &copy, sizeof copy);
}

FileIdentity identity_of(const struct stat &status) { return {status.st_dev, status.st_ino}; }

// What is being looked at, for the sentences.
struct Checked {
  const char *directory;
  const char *name;
};

Error open_checked(int directory_fd, const Checked &what, int access, ScopedFd *fd, struct stat *status) {
  // O_NONBLOCK: a fifo in the file's place must not hang us before we see that it is one.
  *fd = ScopedFd(openat(directory_fd, what.name, access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!*fd) {
    if (errno == ELOOP) {
      return make_error(Fault::symlink, "%s/%s is a symbolic link; remove the region and create it anew",
                        what.directory, what.name);
    }
    const Fault fault = errno == ENOENT ? Fault::not_found : Fault::system;
    Error error = system_error("cannot open %s/%s", what.directory, what.name);
    error.fault = fault;
    return error;
  }
  if (!file_status(fd->get(), status)) {
    return system_error("cannot stat %s/%s", what.directory, what.name);
  }
  if (!S_ISREG(status->st_mode)) {
    return make_error(Fault::foreign, "%s/%s is not a regular file", what.directory, what.name);
  }
  if ((status->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return make_error(Fault::writable, "%s/%s may be written by others than its owner (mode %03o)", what.directory,
                      what.name, status->st_mode & 0777u);
  }
  return {};
}

Error check_header(const Checked &what, const char *magic, const struct stat &status, int fd, FileHeader *header) {
  const ssize_t length = pread(fd, header, sizeof *header, 0);
  if (length < 0) return system_error("cannot read %s/%s", what.directory, what.name);
  if (length != static_cast<ssize_t>(sizeof *header)) {
    return make_error(Fault::truncated, "%s/%s is cut off within its header (%zd bytes)", what.directory, what.name,
                      length);
  }
  if (std::memcmp(header->magic, magic, sizeof header->magic) != 0) {
    return make_error(Fault::foreign, "%s/%s is not a slurm-vgpu file of this kind", what.directory, what.name);
  }
  if (header->layout != kLayoutVersion) {
    const bool newer = header->layout > kLayoutVersion;
    return make_error(newer ? Fault::newer : Fault::older, "%s/%s has layout version %u, this is version %u; %s",
                      what.directory, what.name, header->layout, kLayoutVersion,
                      newer ? "update libvgpu on this node" : "end the job that was started before the update");
  }
  if (header->ndev == 0 || header->ndev > kMaxDevices || header->slots != kSlots) {
    return make_error(Fault::corrupt, "%s/%s claims %u devices and %u slots; its header is corrupted", what.directory,
                      what.name, header->ndev, header->slots);
  }
  if (static_cast<std::uint64_t>(status.st_size) != header->file_size) {
    return make_error(Fault::truncated, "%s/%s has %llu bytes instead of %llu", what.directory, what.name,
                      static_cast<unsigned long long>(status.st_size),
                      static_cast<unsigned long long>(header->file_size));
  }
  return {};
}

Error corrupt_error(const Checked &what, const char *why) {
  return make_error(Fault::corrupt, "%s/%s is corrupted: %s", what.directory, what.name, why);
}

Error open_directory(const char *directory, Trust trust, RegionFiles *files) {
  if (directory[0] != '/' || std::strlen(directory) > kMaxPath) {
    return make_error(Fault::invalid, "a region's path is absolute and at most %zu bytes long: %s", kMaxPath,
                      directory);
  }
  files->directory = ScopedFd(open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!files->directory) {
    if (errno == ENOENT) return make_error(Fault::not_found, "there is no region %s", directory);
    if (errno == ELOOP || errno == ENOTDIR) {
      return make_error(Fault::symlink, "%s is not a directory of its own (a link or a file)", directory);
    }
    return system_error("cannot open region %s", directory);
  }
  struct stat status;
  if (!file_status(files->directory.get(), &status)) {
    return system_error("cannot stat region %s", directory);
  }
  if (!is_trusted(status.st_uid, trust, files->users)) {
    return make_error(Fault::wrong_owner, "region %s belongs to uid %u, not to root", directory, status.st_uid);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return make_error(Fault::writable, "region %s may be written by others than its owner (mode %03o)", directory,
                      status.st_mode & 0777u);
  }
  return {};
}

}  // namespace

std::uint64_t limits_checksum(const FileHeader &header, const JobIdentity &job, const DeviceLimits *devices) {
  std::uint64_t hash = fnv1a(header_checksum(header), &job, sizeof job);
  for (unsigned dev = 0; dev < header.ndev; ++dev) {
    hash = fnv1a(hash, &devices[dev].identity, sizeof(DeviceIdentity));
  }
  return hash;
}

std::uint64_t usage_checksum(const FileHeader &header) { return header_checksum(header); }

Error check_memory_limit(std::uint64_t bytes) {
  if (bytes >= kUnitBytes && bytes / kUnitBytes <= kMaxUnits) return {};
  return make_error(Fault::invalid, "a memory limit of %llu bytes is out of range",
                    static_cast<unsigned long long>(bytes));
}

Error check_sm_percent(std::uint32_t percent) {
  if (percent >= 1 && percent <= 100) return {};
  return make_error(Fault::invalid, "an SM limit of %u percent is not within 1 to 100", percent);
}

Error open_limits(const char *directory, Trust trust, int access, RegionFiles *files) {
  if (Error error = open_directory(directory, trust, files)) return error;
  const Checked what = {directory, kLimitsName};
  struct stat status;
  if (Error error = open_checked(files->directory.get(), what, access, &files->limits, &status)) return error;
  if (!is_trusted(status.st_uid, trust, files->users)) {
    return make_error(Fault::wrong_owner, "%s/limits belongs to uid %u, not to root", directory, status.st_uid);
  }
  FileHeader &header = files->header;
  if (Error error = check_header(what, kLimitsMagic, status, files->limits.get(), &header)) return error;
  if (header.file_size != limits_size(header.ndev)) return corrupt_error(what, "its size does not fit its devices");
  const ScopedMapping mapping(files->limits.get(), header.file_size, PROT_READ);
  if (!mapping) return system_error("cannot map %s/limits", directory);
  const auto &limits = *static_cast<const LimitsFile *>(mapping.get());
  if (header.checksum != limits_checksum(header, limits.job, limits.devices)) {
    return corrupt_error(what, "its checksum is wrong");
  }
  files->job = limits.job;
  return {};
}

Error open_usage(const char *directory, int access, RegionFiles *files) {
  const Checked what = {directory, kUsageName};
  struct stat status;
  if (Error error = open_checked(files->directory.get(), what, access, &files->usage, &status)) return error;
  if (files->users.outside(status.st_uid) != files->job.uid) {
    return make_error(Fault::wrong_owner, "%s/usage belongs to uid %u, but the job is uid %u's", directory,
                      status.st_uid, files->job.uid);
  }
  FileHeader header;
  if (Error error = check_header(what, kUsageMagic, status, files->usage.get(), &header)) return error;
  if (header.checksum != usage_checksum(header)) return corrupt_error(what, "its checksum is wrong");
  if (header.ndev != files->header.ndev || header.file_size != usage_size(header.ndev) ||
      std::memcmp(header.id, files->header.id, sizeof header.id) != 0) {
    return corrupt_error(what, "it does not belong to the limits beside it");
  }
  files->usage_identity = identity_of(status);
  return {};
}

Error open_region(const char *directory, Trust trust, int usage_access, RegionFiles *files) {
  if (Error error = open_limits(directory, trust, O_RDONLY, files)) return error;
  return open_usage(directory, usage_access, files);
}

ScopedFd reopen_usage(const UsagePath &path, int access) {
  const ScopedFd directory_fd(open(path.directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory_fd) return {};
  ScopedFd fd(openat(directory_fd.get(), kUsageName, access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!fd || !file_status(fd.get(), &status)) return {};
  if (!(identity_of(status) == path.identity)) return {};
  return fd;
}

}  // namespace vgpu::region
