// Region::attach: from a path to two checked mappings.
#include "region.h"

#include <fcntl.h>

#include <cstring>

#include "files.h"

namespace vgpu::region {

ContextFigure known_context(const DeviceLimits &device) {
  const ContextWord word = ContextWord::unpack(device.context.load(std::memory_order_relaxed));
  if (word.bytes == 0 || word.source > static_cast<std::uint64_t>(ContextSource::site)) return {};
  return {word.bytes, static_cast<ContextSource>(word.source)};
}

Error Region::attach(const char *directory, Trust trust, Region *region) {
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDWR, &files)) return error;
  const unsigned ndev = files.header.ndev;
  const std::uint32_t layout = files.header.layout;
  ScopedMapping limits(files.limits.get(), limits_size(ndev), PROT_READ);
  if (!limits) return system_error("cannot map %s/limits", directory);
  ScopedMapping usage(files.usage.get(), usage_size(ndev, layout), PROT_READ | PROT_WRITE);
  if (!usage) return system_error("cannot map %s/usage", directory);

  region->usage_ = Usage(usage.get(), ndev, layout);
  region->limits_mapping_ = std::move(limits);
  region->usage_mapping_ = std::move(usage);
  region->usage_identity_ = files.usage_identity;
  std::strcpy(region->directory_, directory);
  return {};
}

std::uint64_t Region::memory_limit(unsigned dev) const {
  return device(dev).memory_bytes.load(std::memory_order_acquire);
}

std::uint64_t Region::block_bytes(unsigned dev) const {
  const std::uint64_t bytes = device(dev).block_bytes.load(std::memory_order_relaxed);
  return bytes != 0 ? bytes : kUsualBlock;
}

std::uint64_t Region::usable_bytes(unsigned dev) const {
  const std::uint64_t bytes = device(dev).usable_bytes.load(std::memory_order_relaxed);
  return bytes != 0 ? bytes : device(dev).identity.memory_bytes;
}

std::uint64_t Region::memory_used(unsigned dev) const {
  return bytes_of(DeviceWord::unpack(usage_.device(dev).total.load(std::memory_order_acquire)).units);
}

}  // namespace vgpu::region
