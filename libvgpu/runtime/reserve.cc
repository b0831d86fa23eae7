#include "reserve.h"

#include "pool_memory.h"
#include "refusal.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

namespace {

enum class Measure : std::uint8_t { yes, no };

[[gnu::cold, gnu::noinline]] bool reserve_idle_memory(unsigned dev, region::Kind kind, std::uint64_t bytes,
                                                      region::Grant grant, Measure measure) {
  if (grant == region::Grant::refused && trim_pools(dev)) grant = rank().try_to_reserve(dev, kind, bytes);
  if (grant == region::Grant::refused && measure == Measure::yes && settle_before_refusing(dev)) {
    grant = rank().try_to_reserve(dev, kind, bytes);
  }
  if (grant == region::Grant::refused && has_pools(dev)) {
    ExclusivePools alone(dev);
    trim_pools(dev);
    grant = rank().try_to_reserve(dev, kind, bytes);
  }
  if (grant == region::Grant::granted) return true;
  refuse(dev, bytes, grant);
  return false;
}

}  // namespace

bool reserve_memory(unsigned dev, region::Kind kind, std::uint64_t bytes) {
  const region::Grant grant = rank().try_to_reserve(dev, kind, bytes);
  return grant == region::Grant::granted || reserve_idle_memory(dev, kind, bytes, grant, Measure::yes);
}

bool reserve_measured(unsigned dev, region::Kind kind, std::uint64_t bytes) {
  const region::Grant grant = rank().try_to_reserve(dev, kind, bytes);
  return grant == region::Grant::granted || reserve_idle_memory(dev, kind, bytes, grant, Measure::no);
}

}  // namespace vgpu::runtime
