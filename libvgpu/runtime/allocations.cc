#include "allocations.h"

#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "region/words.h"

namespace vgpu::runtime {

namespace {

using Units = region::Field<0, 33>;
using Dev = region::Field<33, 6>;
using Context = region::Field<39, 16>;
using Elastic = region::Field<55, 1>;

constexpr std::uint64_t pack(const Allocation &a) {
  return Units::put(a.units) | Dev::put(a.dev) | Context::put(a.context) | Elastic::put(a.elastic);
}
constexpr Allocation unpack(std::uint64_t value) {
  return {Units::get(value), static_cast<unsigned>(Dev::get(value)), static_cast<unsigned>(Context::get(value)),
          Elastic::get(value) != 0};
}

class Shard {
 public:
  bool add(std::uint64_t key, std::uint64_t hashed, const Allocation &allocation, Allocation *displaced) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.insert(key, hashed);
    if (value == nullptr) return false;
    *displaced = unpack(*value);
    *value = pack(allocation);
    subtract(*displaced);
    recorded_[allocation.dev].units += allocation.units;
    if (allocation.elastic) recorded_[allocation.dev].elastic_units += allocation.units;
    return true;
  }

  bool take(std::uint64_t key, std::uint64_t hashed, Allocation *allocation) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.find(key, hashed);
    if (value == nullptr) return false;
    *allocation = unpack(*value);
    subtract(*allocation);
    map_.erase(value);
    return true;
  }

  void take_all_of(unsigned context, std::uint64_t units[region::kMaxDevices]) {
    ScopedLock lock(mutex_);
    map_.erase_if([&](std::uint64_t, std::uint64_t value) {
      mutex_.assert_held();
      const Allocation allocation = unpack(value);
      if (allocation.context != context) return false;
      units[allocation.dev] += allocation.units;
      subtract(allocation);
      return true;
    });
  }

  Recorded recorded(unsigned dev) {
    ScopedLock lock(mutex_);
    return recorded_[dev];
  }

 private:
  void subtract(const Allocation &gone) VGPU_REQUIRES(mutex_) {
    recorded_[gone.dev].units -= gone.units;
    if (gone.elastic) recorded_[gone.dev].elastic_units -= gone.units;
  }

  alignas(region::kLine) Mutex mutex_;
  FlatMap map_ VGPU_GUARDED_BY(mutex_);
  Recorded recorded_[region::kMaxDevices] VGPU_GUARDED_BY(mutex_);
};

constexpr unsigned kShards = 64;
struct Shards {
  Shard shard[kShards];
};
constinit WipedOnFork<Shards> shards;

Shard *shard_of(std::uint64_t hashed) {
  Shards *all = shards.get();
  return all != nullptr ? &all->shard[hashed >> 58] : nullptr;
}

}  // namespace

bool add_allocation(std::uint64_t key, const Allocation &allocation, Allocation *displaced) {
  const std::uint64_t hashed = FlatMap::hash(key);
  Shard *shard = shard_of(hashed);
  return shard != nullptr && shard->add(key, hashed, allocation, displaced);
}

bool take_allocation(std::uint64_t key, Allocation *allocation) {
  const std::uint64_t hashed = FlatMap::hash(key);
  Shard *shard = shard_of(hashed);
  return shard != nullptr && shard->take(key, hashed, allocation);
}

void take_allocations_of(unsigned context, std::uint64_t units[region::kMaxDevices]) {
  Shards *all = shards.get();
  if (all == nullptr) return;
  for (Shard &shard : all->shard) shard.take_all_of(context, units);
}

Recorded recorded(unsigned dev) {
  Shards *all = shards.get();
  Recorded sum;
  if (all == nullptr) return sum;
  for (Shard &shard : all->shard) {
    const Recorded part = shard.recorded(dev);
    sum.units += part.units;
    sum.elastic_units += part.elastic_units;
  }
  return sum;
}

}  // namespace vgpu::runtime
