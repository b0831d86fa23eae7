#include "bench_region.h"

#include <unistd.h>

#include <cstdio>

namespace bench {

BenchRegion::BenchRegion(const std::string &parent, std::uint64_t memory_limit)
    : BenchRegion(parent, memory_limit, "GPU-bench", memory_limit) {}

BenchRegion::BenchRegion(const std::string &parent, std::uint64_t memory_limit, const char *uuid,
                         std::uint64_t device_bytes)
    : parent_(parent) {
  static unsigned made = 0;
  name_ = "region-" + std::to_string(++made);
  directory_ = parent_ + "/" + name_;

  vgpu::region::DeviceSpec device;
  std::snprintf(device.identity.uuid, sizeof device.identity.uuid, "%s", uuid);
  device.identity.memory_bytes = device_bytes;
  device.memory_limit = memory_limit;
  vgpu::region::RegionSpec spec;
  spec.uid = getuid();
  spec.ndev = 1;
  spec.devices = &device;
  check(vgpu::region::Region::create(parent_.c_str(), name_.c_str(), spec));
}

BenchRegion::~BenchRegion() {
  const vgpu::Error error = vgpu::region::Region::remove(parent_.c_str(), name_.c_str());
  if (error) std::fprintf(stderr, "%s\n", error.text);
}

}  // namespace bench
