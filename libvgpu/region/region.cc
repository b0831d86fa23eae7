// Region::attach: from a path to two checked mappings.
#include "region.h"

#include <fcntl.h>

#include <cstring>

#include "files.h"

namespace vgpu {

Error Region::attach(const char *directory, Trust trust, Region *region) {
  if (std::strlen(directory) >= sizeof region->directory_) {
    return make_error(Fault::invalid, "vgpu: the region path is longer than %zu bytes", sizeof region->directory_ - 1);
  }
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDONLY, O_RDWR, &files)) return error;
  ScopedMapping limits(files.limits.get(), limits_size(files.ndev), PROT_READ);
  if (!limits) return system_error("vgpu: cannot map %s/limits", directory);
  ScopedMapping usage(files.usage.get(), usage_size(files.ndev), PROT_READ | PROT_WRITE);
  if (!usage) return system_error("vgpu: cannot map %s/usage", directory);

  region->usage_ = Usage(usage.get(), files.ndev);
  region->limits_mapping_ = std::move(limits);
  region->usage_mapping_ = std::move(usage);
  region->usage_identity_ = files.usage_identity;
  std::strcpy(region->directory_, directory);
  return {};
}

std::uint64_t Region::memory_limit(unsigned dev) const {
  return device(dev).memory_bytes.load(std::memory_order_acquire);
}

std::uint64_t Region::memory_used(unsigned dev) const {
  return bytes_of(DeviceWord::unpack(usage_.device(dev).total.load(std::memory_order_acquire)).units);
}

}  // namespace vgpu
