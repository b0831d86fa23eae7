// Opening the two files of a region, and believing nothing about them that was not checked.
#pragma once

#include <cstddef>

#include "error.h"
#include "liveness.h"
#include "region.h"
#include "scoped.h"

namespace vgpu {

struct RegionFiles {
  ScopedFd limits;
  ScopedFd usage;
  FileIdentity usage_identity;
  unsigned ndev = 0;
  uid_t owner = 0;  // of `limits`: root, or the user who made the region for himself
};

// Checks owners, modes, sizes, versions, checksums and that both files belong together. `limits_access` and
// `usage_access` are O_RDONLY or O_RDWR.
Error open_region(const char *directory, Trust trust, int limits_access, int usage_access, RegionFiles *files);

// The usage file of a region that was attached before; empty if the path now names another file.
ScopedFd reopen_usage(const UsagePath &path, int access);

// Fills both headers and all that never changes; used by create() and by tests that forge files.
std::uint64_t limits_checksum(const LimitsFile &limits);
std::uint64_t usage_checksum(const FileHeader &header);

}  // namespace vgpu
