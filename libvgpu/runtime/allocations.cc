#include "allocations.h"

#include <atomic>

#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"

namespace vgpu::runtime {

using namespace allocation_words;

namespace {

class Shard {
 public:
  bool add(std::uint64_t key, std::uint64_t hashed, std::uint64_t word, std::uint64_t *displaced) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.insert(key, hashed);
    if (value == nullptr) return false;
    if (__builtin_expect(*value != 0, false)) displace(*value, displaced);
    *value = word;
    record(word);
    return true;
  }

  // Never a block of pieces: whoever has only a pointer of one does not have the block.
  bool take(std::uint64_t key, std::uint64_t hashed, std::uint64_t *taken) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.find(key, hashed);
    if (value == nullptr || Small::get(*value) != 0) return false;
    *taken = *value;
    subtract(*value);
    map_.erase(value);
    return true;
  }

  Piece add_piece(std::uint64_t base, std::uint64_t hashed, std::uint64_t first, bool (*pay)(unsigned, std::uint64_t),
                  std::uint64_t *displaced) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.insert(base, hashed);
    if (value == nullptr) return Piece::no_memory;
    const std::uint64_t differs = (*value ^ first) & kSameBlock;
    if (__builtin_expect(differs == 0, true)) {
      *value += Pieces::put(1);
      if (__builtin_expect((~first & *value & Elastic::put(1)) != 0, false)) make_firm(*value);
      return Piece::shared_block;
    }
    if (differs == Unpaid::put(1)) {
      *value += Pieces::put(1);
    } else {
      if (__builtin_expect(*value != 0, false)) displace(*value, displaced);
      *value = first | Unpaid::put(1);
      record(first);
    }
    if (!pay(static_cast<unsigned>(Dev::get(first)), region::bytes_of(units_in(first)))) return Piece::unpaid_block;
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

  Taken take_pointer(std::uint64_t pointer, std::uint64_t base, std::uint64_t hashed, std::uint64_t *taken) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.find(base, hashed);
    if (value == nullptr) return Taken::not_ours;
    const std::uint64_t found = *value;
    const bool small = Small::get(found) != 0;
    if (!small && pointer != base) return Taken::not_ours;
    *taken = found;
    if (small && Pieces::get(found) > 1) {
      *value -= Pieces::put(1);
      return Taken::piece;
    }
    subtract(found);
    map_.erase(value);
    return small ? Taken::last_piece : Taken::large;
  }

  bool share(std::uint64_t pointer, std::uint64_t base, std::uint64_t hashed, std::uint64_t *shared) {
    ScopedLock lock(mutex_);
    std::uint64_t *value = map_.find(base, hashed);
    if (value == nullptr || (Small::get(*value) == 0 && pointer != base)) return false;
    subtract(*value);
    *value |= Shared::put(1);
    record(*value);
    *shared = *value;
    return true;
  }

  void take_all_of(unsigned context, Given *given) {
    ScopedLock lock(mutex_);
    map_.erase_if([&](std::uint64_t, std::uint64_t value) {
      mutex_.assert_held();
      if (Context::get(value) != context) return false;
      if (Unpaid::get(value) == 0) {
        (Small::get(value) != 0 ? given->small_units : given->data_units)[Dev::get(value)] += units_in(value);
      }
      subtract(value);
      return true;
    });
  }

  Recorded recorded(unsigned dev) {
    ScopedLock lock(mutex_);
    return recorded_[dev];
  }

 private:
  // What others hold on to may be charged to them, too, so it is as uncertain as what is elastic.
  static bool may_be_elsewhere(std::uint64_t value) { return (value & (Elastic::put(1) | Shared::put(1))) != 0; }

  void record(std::uint64_t value) VGPU_REQUIRES(mutex_) {
    recorded_[Dev::get(value)].units += units_in(value);
    if (may_be_elsewhere(value)) recorded_[Dev::get(value)].elastic_units += units_in(value);
  }
  void subtract(std::uint64_t value) VGPU_REQUIRES(mutex_) {
    recorded_[Dev::get(value)].units -= units_in(value);
    if (may_be_elsewhere(value)) recorded_[Dev::get(value)].elastic_units -= units_in(value);
  }
  [[gnu::cold]] void displace(std::uint64_t value, std::uint64_t *displaced) VGPU_REQUIRES(mutex_) {
    *displaced = value;
    subtract(value);
  }
  // A block with one piece that is surely there is there.
  [[gnu::cold]] void make_firm(std::uint64_t &value) VGPU_REQUIRES(mutex_) {
    subtract(value);
    value &= ~Elastic::put(1);
    record(value);
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

namespace allocation_words {

bool add_allocation(std::uint64_t key, std::uint64_t word, std::uint64_t *displaced) {
  const std::uint64_t hashed = FlatMap::hash(key);
  Shards *all = shards.get();
  return all != nullptr && shard_of(*all, hashed).add(key, hashed, word, displaced);
}

bool take_allocation(std::uint64_t key, std::uint64_t *word) {
  const std::uint64_t hashed = FlatMap::hash(key);
  Shards *all = shards.get();
  return all != nullptr && shard_of(*all, hashed).take(key, hashed, word);
}

bool add_large(std::uint64_t pointer, std::uint64_t block, std::uint64_t word, std::uint64_t *displaced) {
  Shards *all = shards.get();
  if (all == nullptr) return false;
  note_block_size(*all, block);
  if (block_of(pointer, block) != pointer) all->odd_pointers.store(true, std::memory_order_relaxed);
  const std::uint64_t hashed = FlatMap::hash(pointer);
  return shard_of(*all, hashed).add(pointer, hashed, word, displaced);
}

Piece add_piece(std::uint64_t pointer, std::uint64_t block, std::uint64_t word,
                bool (*pay)(unsigned dev, std::uint64_t block), std::uint64_t *displaced) {
  Shards *all = shards.get();
  if (all == nullptr) return Piece::no_memory;
  note_block_size(*all, block);
  const std::uint64_t base = block_of(pointer, block);
  const std::uint64_t hashed = FlatMap::hash(base);
  return shard_of(*all, hashed).add_piece(base, hashed, word, pay, displaced);
}

bool share_allocation(std::uint64_t key, std::uint64_t *word) {
  Shards *all = shards.get();
  const std::uint64_t hashed = FlatMap::hash(key);
  return all != nullptr && shard_of(*all, hashed).share(key, key, hashed, word);
}

}  // namespace allocation_words

bool pay_block(std::uint64_t pointer, std::uint64_t block) {
  Shards *all = shards.get();
  const std::uint64_t base = block_of(pointer, block);
  const std::uint64_t hashed = FlatMap::hash(base);
  return all != nullptr && shard_of(*all, hashed).pay(base, hashed);
}

namespace allocation_words {

Taken take_pointer(std::uint64_t pointer, std::uint64_t *word) {
  Shards *all = shards.get();
  if (all == nullptr) return Taken::not_ours;
  const bool odd = all->odd_pointers.load(std::memory_order_relaxed);
  if (__builtin_expect(odd, false) && take_allocation(pointer, word)) return Taken::large;
  Taken taken = Taken::not_ours;
  for_each_base(*all, pointer, [&](std::uint64_t base, std::uint64_t hashed) {
    taken = shard_of(*all, hashed).take_pointer(pointer, base, hashed, word);
    return taken != Taken::not_ours;
  });
  return taken;
}

bool share_pointer(std::uint64_t pointer, std::uint64_t *word) {
  Shards *all = shards.get();
  if (all == nullptr) return false;
  bool shared = false;
  const auto share = [&](std::uint64_t base, std::uint64_t hashed) {
    shared = shard_of(*all, hashed).share(pointer, base, hashed, word);
    return shared;
  };
  if (all->odd_pointers.load(std::memory_order_relaxed) && share(pointer, FlatMap::hash(pointer))) return true;
  for_each_base(*all, pointer, share);
  return shared;
}

}  // namespace allocation_words

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
