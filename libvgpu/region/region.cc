// Region::attach: from a path to two checked mappings.
#include "region.h"

#include <fcntl.h>

#include <cstring>

#include "files.h"

namespace vgpu::region {

Error Region::attach(const char *directory, Trust trust, Region *region) {
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDWR, &files)) return error;
  const unsigned ndev = files.header.ndev;
  ScopedMapping limits(files.limits.get(), limits_size(ndev), PROT_READ);
  if (!limits) return system_error("cannot map %s/limits", directory);
  ScopedMapping usage(files.usage.get(), usage_size(ndev), PROT_READ | PROT_WRITE);
  if (!usage) return system_error("cannot map %s/usage", directory);

  region->usage_ = Usage(usage.get(), ndev);
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

}  // namespace vgpu::region
