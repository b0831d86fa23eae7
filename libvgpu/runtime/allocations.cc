#include "allocations.h"

#include <atomic>
#include <bit>

#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "region/words.h"

namespace vgpu::runtime {

namespace {

using Units = region::Field<0, 33>;
using Pieces = region::Field<0, 28>;  // of a block of them, and the logarithm of its units
using BlockShift = region::Field<28, 5>;
using Dev = region::Field<33, 6>;
using Context = region::Field<39, 16>;
using Elastic = region::Field<55, 1>;
using Small = region::Field<56, 1>;
using Shared = region::Field<57, 1>;
using Unpaid = region::Field<58, 1>;

// What a paid block of pieces must have in common with one more.
constexpr std::uint64_t kSameBlock =
    Dev::put(Dev::kMask) | Context::put(Context::kMask) | Small::put(1) | Unpaid::put(1);

constexpr std::uint64_t pack_rest(const Allocation &a) {
  return Dev::put(a.dev) | Context::put(a.context) | Elastic::put(a.elastic) | Small::put(a.small) |
         Shared::put(a.shared) | Unpaid::put(a.unpaid);
}
constexpr std::uint64_t pack(const Allocation &a) { return Units::put(a.units) | pack_rest(a); }
constexpr std::uint64_t pack_first_piece(const Allocation &a) {
  return Pieces::put(1) | BlockShift::put(static_cast<unsigned>(std::countr_zero(a.units))) | pack_rest(a);
}
constexpr Allocation unpack(std::uint64_t value) {
  const bool small = Small::get(value) != 0;
  return {small ? std::uint64_t{1} << BlockShift::get(value) : Units::get(value),
          static_cast<unsigned>(Dev::get(value)),
          static_cast<unsigned>(Context::get(value)),
          Elastic::get(value) != 0,
          small,
          Shared::get(value) != 0,
          Unpaid::get(value) != 0};
}

class Shard {
 public:
  bool add(std::uint64_t key, std::uint64_t hashed, const Allocation &allocation, Allocation *displaced) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.insert(key, hashed);
    if (value == nullptr) return false;
    *displaced = unpack(*value);
    subtract(*displaced);
    *value = pack(allocation);
    record(allocation);
    return true;
  }

  // Never a block of pieces: whoever has only a pointer of one does not have the block.
  bool take(std::uint64_t key, std::uint64_t hashed, Allocation *allocation) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.find(key, hashed);
    if (value == nullptr || Small::get(*value) != 0) return false;
    *allocation = unpack(*value);
    subtract(*allocation);
    map_.erase(value);
    return true;
  }

  Piece add_piece(std::uint64_t base, std::uint64_t hashed, const Allocation &block,
                  bool (*pay)(unsigned, std::uint64_t), Allocation *displaced) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.insert(base, hashed);
    if (value == nullptr) return Piece::no_memory;
    const std::uint64_t differs = (*value ^ pack_rest(block)) & kSameBlock;
    if (__builtin_expect(differs == 0, true)) {
      *value += Pieces::put(1);
      if (__builtin_expect(!block.elastic && Elastic::get(*value) != 0, false)) make_firm(*value);
      return Piece::shared_block;
    }
    if (differs == Unpaid::put(1)) {
      *value += Pieces::put(1);
    } else {
      *displaced = unpack(*value);
      subtract(*displaced);
      *value = pack_first_piece(block) | Unpaid::put(1);
      record(block);
    }
    if (!pay(block.dev, region::bytes_of(block.units))) return Piece::unpaid_block;
    *value &= ~Unpaid::put(1);
    return Piece::new_block;
  }

  bool pay(std::uint64_t base, std::uint64_t hashed) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.find(base, hashed);
    if (value == nullptr || Unpaid::get(*value) == 0) return false;
    *value &= ~Unpaid::put(1);
    return true;
  }

  Taken take_pointer(std::uint64_t pointer, std::uint64_t base, std::uint64_t hashed, Allocation *allocation) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.find(base, hashed);
    if (value == nullptr) return Taken::not_ours;
    const std::uint64_t found = *value;
    const bool small = Small::get(found) != 0;
    if (!small && pointer != base) return Taken::not_ours;
    *allocation = unpack(found);
    if (small && Pieces::get(found) > 1) {
      *value -= Pieces::put(1);
      return Taken::piece;
    }
    subtract(*allocation);
    map_.erase(value);
    return small ? Taken::last_piece : Taken::large;
  }

  bool share(std::uint64_t pointer, std::uint64_t base, std::uint64_t hashed, Allocation *allocation) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.find(base, hashed);
    if (value == nullptr || (Small::get(*value) == 0 && pointer != base)) return false;
    *allocation = unpack(*value);
    subtract(*allocation);
    allocation->shared = true;
    *value |= Shared::put(1);
    record(*allocation);
    return true;
  }

  void take_all_of(unsigned context, Given *given) {
    ScopedLock lock(mutex_);
    map_.erase_if([&](std::uint64_t, std::uint64_t value) {
      mutex_.assert_held();
      const Allocation allocation = unpack(value);
      if (allocation.context != context) return false;
      if (!allocation.unpaid) {
        (allocation.small ? given->small_units : given->data_units)[allocation.dev] += allocation.units;
      }
      subtract(allocation);
      return true;
    });
  }

  Recorded recorded(unsigned dev) {
    ScopedLock lock(mutex_);
    return recorded_[dev];
  }

 private:
  // What others hold on to may be charged to them, too, so it is as uncertain as what is elastic.
  static bool may_be_elsewhere(const Allocation &a) { return a.elastic || a.shared; }

  void record(const Allocation &more) VGPU_REQUIRES(mutex_) {
    recorded_[more.dev].units += more.units;
    if (may_be_elsewhere(more)) recorded_[more.dev].elastic_units += more.units;
  }
  void subtract(const Allocation &gone) VGPU_REQUIRES(mutex_) {
    recorded_[gone.dev].units -= gone.units;
    if (may_be_elsewhere(gone)) recorded_[gone.dev].elastic_units -= gone.units;
  }
  // A block with one piece that is surely there is there.
  void make_firm(std::uint64_t &value) VGPU_REQUIRES(mutex_) {
    subtract(unpack(value));
    value &= ~Elastic::put(1);
    record(unpack(value));
  }

  alignas(region::kLine) FastMutex mutex_;
  FlatMap map_ VGPU_GUARDED_BY(mutex_);
  Recorded recorded_[region::kMaxDevices] VGPU_GUARDED_BY(mutex_);
};

constexpr unsigned kShards = 64;
struct Shards {
  Shard shard[kShards];
  std::atomic<std::uint64_t> block_sizes;  // each a bit: of devices that memory was allocated on
  std::atomic<bool> odd_pointers;          // something large was added that does not begin with a block
};
constinit WipedOnFork<Shards> shards;

Shard &shard_of(Shards &all, std::uint64_t hashed) { return all.shard[hashed >> 58]; }

void note_block_size(Shards &all, std::uint64_t block) {
  if ((all.block_sizes.load(std::memory_order_relaxed) & block) == 0) {
    all.block_sizes.fetch_or(block, std::memory_order_relaxed);
  }
}

// work(base, hash) with each block that a pointer of some device could lie in, the smallest first, until it says that it
// found it. As no memory lies in two allocations, a block that is found is the right one.
template <typename Work>
void for_each_base(Shards &all, std::uint64_t pointer, Work work) {
  std::uint64_t sizes = all.block_sizes.load(std::memory_order_relaxed);
  for (; sizes != 0; sizes &= sizes - 1) {
    const std::uint64_t base = block_of(pointer, sizes & -sizes);
    if (work(base, FlatMap::hash(base))) return;
  }
}

}  // namespace

bool add_allocation(std::uint64_t key, const Allocation &allocation, Allocation *displaced) {
  const std::uint64_t hashed = FlatMap::hash(key);
  Shards *all = shards.get();
  return all != nullptr && shard_of(*all, hashed).add(key, hashed, allocation, displaced);
}

bool take_allocation(std::uint64_t key, Allocation *allocation) {
  const std::uint64_t hashed = FlatMap::hash(key);
  Shards *all = shards.get();
  return all != nullptr && shard_of(*all, hashed).take(key, hashed, allocation);
}

bool add_large(std::uint64_t pointer, std::uint64_t block, const Allocation &allocation, Allocation *displaced) {
  Shards *all = shards.get();
  if (all == nullptr) return false;
  note_block_size(*all, block);
  if (block_of(pointer, block) != pointer) all->odd_pointers.store(true, std::memory_order_relaxed);
  return add_allocation(pointer, allocation, displaced);
}

Piece add_piece(std::uint64_t pointer, std::uint64_t block, const Allocation &allocation,
                bool (*pay)(unsigned dev, std::uint64_t block), Allocation *displaced) {
  Shards *all = shards.get();
  if (all == nullptr) return Piece::no_memory;
  note_block_size(*all, block);
  const std::uint64_t base = block_of(pointer, block);
  const std::uint64_t hashed = FlatMap::hash(base);
  return shard_of(*all, hashed).add_piece(base, hashed, allocation, pay, displaced);
}

bool pay_block(std::uint64_t pointer, std::uint64_t block) {
  Shards *all = shards.get();
  const std::uint64_t base = block_of(pointer, block);
  const std::uint64_t hashed = FlatMap::hash(base);
  return all != nullptr && shard_of(*all, hashed).pay(base, hashed);
}

Taken take_pointer(std::uint64_t pointer, Allocation *allocation) {
  Shards *all = shards.get();
  if (all == nullptr) return Taken::not_ours;
  const bool odd = all->odd_pointers.load(std::memory_order_relaxed);
  if (__builtin_expect(odd, false) && take_allocation(pointer, allocation)) return Taken::large;
  Taken taken = Taken::not_ours;
  for_each_base(*all, pointer, [&](std::uint64_t base, std::uint64_t hashed) {
    taken = shard_of(*all, hashed).take_pointer(pointer, base, hashed, allocation);
    return taken != Taken::not_ours;
  });
  return taken;
}

bool share_pointer(std::uint64_t pointer, Allocation *allocation) {
  Shards *all = shards.get();
  if (all == nullptr) return false;
  bool shared = false;
  const auto share = [&](std::uint64_t base, std::uint64_t hashed) {
    shared = shard_of(*all, hashed).share(pointer, base, hashed, allocation);
    return shared;
  };
  if (all->odd_pointers.load(std::memory_order_relaxed) && share(pointer, FlatMap::hash(pointer))) return true;
  for_each_base(*all, pointer, share);
  return shared;
}

void take_allocations_of(unsigned context, Given *given) {
  Shards *all = shards.get();
  if (all == nullptr) return;
  for (Shard &shard : all->shard) shard.take_all_of(context, given);
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
