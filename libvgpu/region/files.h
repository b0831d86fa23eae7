// Opening the files of a region, and believing nothing about them that was not checked.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "base/scoped.h"
#include "liveness.h"
#include "owner.h"
#include "region.h"

namespace vgpu::region {

struct RegionFiles {
  ScopedFd directory;
  ScopedFd limits;
  ScopedFd usage;
  FileHeader header;  // of `limits`
  JobIdentity job;
  FileIdentity usage_identity;
  UserMap users;
};

// Each checks type, owner, mode, size, version and checksum. `access` is O_RDONLY or O_RDWR.
Error open_limits(const char *directory, Trust trust, int access, RegionFiles *files);
Error open_usage(const char *directory, int access, RegionFiles *files);  // after open_limits()
Error open_region(const char *directory, Trust trust, int usage_access, RegionFiles *files);

// The usage file of a region that was attached before; empty if the path now names another file.
ScopedFd reopen_usage(const UsagePath &path, int access);

Error check_memory_limit(std::uint64_t bytes);
Error check_sm_percent(std::uint32_t percent);

// Over all that never changes after creation.
std::uint64_t limits_checksum(const FileHeader &header, const JobIdentity &job, const DeviceLimits *devices);
std::uint64_t usage_checksum(const FileHeader &header);

}  // namespace vgpu::region
