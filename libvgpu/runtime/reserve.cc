#include "reserve.h"

#include "hidden.h"
#include "refusal.h"
#include "runtime.h"
#include "stock.h"

namespace vgpu {

namespace {

enum class Measure : std::uint8_t { yes, no };

[[gnu::cold, gnu::noinline]] bool reserve_idle_memory(unsigned dev, Kind kind, std::uint64_t bytes, Grant grant,
                                                      Measure measure) {
  if (grant == Grant::refused && trim_stock(dev)) grant = rank().try_to_reserve(dev, kind, bytes);
  if (grant == Grant::refused && measure == Measure::yes && settle_before_refusing(dev)) {
    grant = rank().try_to_reserve(dev, kind, bytes);
  }
  if (grant == Grant::refused) {
    OthersStopped alone(dev);
    trim_stock(dev);
    grant = rank().try_to_reserve(dev, kind, bytes);
  }
  if (grant == Grant::granted) return true;
  refuse(dev, bytes, grant);
  return false;
}

}  // namespace

bool reserve_memory(unsigned dev, Kind kind, std::uint64_t bytes) {
  const Grant grant = rank().try_to_reserve(dev, kind, bytes);
  return grant == Grant::granted || reserve_idle_memory(dev, kind, bytes, grant, Measure::yes);
}

bool reserve_measured(unsigned dev, Kind kind, std::uint64_t bytes) {
  const Grant grant = rank().try_to_reserve(dev, kind, bytes);
  return grant == Grant::granted || reserve_idle_memory(dev, kind, bytes, grant, Measure::no);
}

}  // namespace vgpu
