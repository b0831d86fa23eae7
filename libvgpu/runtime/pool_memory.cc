#include "pool_memory.h"

#include <algorithm>
#include <utility>

#include "allocations.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "blocks.h"
#include "devices.h"
#include "driver/table.h"
#include "imports.h"
#include "refusal.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

std::atomic<bool> pools_may_shrink{false};

namespace {

constexpr unsigned kMaxPools = 256;

struct Gate {
  Mutex exclusive;           // held by the thread that has the device's pools to itself
  std::atomic<bool> closed;  // there is one. Set before, and read under, each pool's mutex: no thread slips by
};

struct Pools {
  Mutex mutex;                 // adding and removing
  std::atomic<unsigned> high;  // no pool in use at or beyond this
  Pool pools[kMaxPools];
  Pool graphs[region::kMaxDevices];  // by ordinal
  std::atomic<bool> graphs_in_use;   // some graph of this process allocates
  Gate gates[region::kMaxDevices];   // by device of the region
};
constinit WipedOnFork<Pools> pools;

std::uint64_t key_of(const Pool &pool) { return allocation_key(Handle::ours, (std::uint64_t{1} << 60) | pool.number); }

bool ask(const Pool &pool, CUmemPool_attribute pool_question, CUgraphMem_attribute graph_question, std::uint64_t *units)
    VGPU_REQUIRES(pool.mutex) {
  cuuint64_t bytes = 0;
  const CUresult result =
      pool.graphs.load(std::memory_order_relaxed)
          ? REAL(cuDeviceGetGraphMemAttribute)(pool.ordinal, graph_question, &bytes)
          : REAL(cuMemPoolGetAttribute)(pool.handle.load(std::memory_order_relaxed), pool_question, &bytes);
  *units = region::units_for(bytes);
  return result == CUDA_SUCCESS;
}

bool reserved_by_driver(const Pool &pool, std::uint64_t *units) VGPU_REQUIRES(pool.mutex) {
  return ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, units);
}

bool used_of(const Pool &pool, std::uint64_t *units) VGPU_REQUIRES(pool.mutex) {
  return ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, units);
}

// After the charge has changed. A pool that has what it is asked for stays as it is.
void record(Pool &pool) VGPU_REQUIRES(pool.mutex) {
  Allocation old;
  const std::uint64_t settled = pool.charged - pool.in_progress;
  if (settled == pool.recorded) return;
  if (settled == 0) {
    take_allocation(key_of(pool), &old);
  } else if (!add_allocation(key_of(pool), {settled, pool.dev, 0, false}, &old)) {
    return;
  }
  pool.recorded = settled;
}

void give_back(Pool &pool, std::uint64_t units) VGPU_REQUIRES(pool.mutex) {
  pool.charged -= units;
  record(pool);
  if (pool.exported > pool.charged) {
    no_longer_charged(pool.dev, region::bytes_of(pool.exported - pool.charged));
    pool.exported = pool.charged;
  }
  if (units != 0) rank().release(pool.dev, region::Kind::data, region::bytes_of(units));
}

// The driver may hold less than is charged.
void shrink_to_what_is_there(Pool &pool) VGPU_REQUIRES(pool.mutex) {
  std::uint64_t there = 0;
  if (!reserved_by_driver(pool, &there)) return;
  const std::uint64_t settled = pool.charged - pool.in_progress;
  if (there < settled) give_back(pool, settled - there);
}

Pool *find_pool(Pools &all, CUmemoryPool handle) {
  const unsigned high = all.high.load(std::memory_order_acquire);
  for (unsigned i = 0; i < high; ++i) {
    if (all.pools[i].handle.load(std::memory_order_acquire) == handle) return &all.pools[i];
  }
  return nullptr;
}

Pool *add_pool(Pools &all, CUmemoryPool handle, CUdevice ordinal) {
  const int dev = region_device(ordinal);
  if (dev == kNotInJob) return nullptr;
  ScopedLock lock(all.mutex);
  if (Pool *known = find_pool(all, handle)) return known;
  const unsigned high = all.high.load(std::memory_order_relaxed);
  unsigned index = 0;
  while (index < high && all.pools[index].handle.load(std::memory_order_relaxed) != nullptr) ++index;
  if (index == kMaxPools) return nullptr;
  Pool &pool = all.pools[index];
  pool.ordinal = ordinal;
  pool.dev = static_cast<unsigned>(dev);
  pool.number = index;
  pool.handle.store(handle, std::memory_order_release);
  if (index == high) all.high.store(high + 1, std::memory_order_release);
  return &pool;
}

template <typename Work>
void for_each_pool(Pools &all, Work work) {
  const unsigned high = all.high.load(std::memory_order_acquire);
  for (unsigned i = 0; i < high; ++i) {
    if (all.pools[i].handle.load(std::memory_order_acquire) != nullptr) work(all.pools[i]);
  }
  if (!all.graphs_in_use.load(std::memory_order_relaxed)) return;
  for (Pool &pool : all.graphs) {
    if (pool.graphs.load(std::memory_order_acquire)) work(pool);
  }
}

}  // namespace

Pool *pool_of(CUmemoryPool handle, bool *elsewhere) {
  Pools *all = pools.get();
  *elsewhere = false;
  if (all == nullptr || handle == nullptr) return nullptr;
  if (Pool *known = find_pool(*all, handle)) return known;
  for (CUdevice ordinal = 0; ordinal < static_cast<CUdevice>(region::kMaxDevices); ++ordinal) {
    CUmemoryPool own = nullptr;
    const CUresult result = REAL(cuDeviceGetDefaultMemPool)(&own, ordinal);
    if (result == CUDA_SUCCESS && own == handle) {
      Pool *added = add_pool(*all, handle, ordinal);
      *elsewhere = added == nullptr;
      return added;
    }
    if (result == CUDA_ERROR_INVALID_DEVICE) break;
  }
  return nullptr;
}

Pool *graph_pool(CUdevice ordinal) {
  Pools *all = pools.get();
  const int dev = region_device(ordinal);
  if (all == nullptr || dev == kNotInJob) return nullptr;
  Pool &pool = all->graphs[ordinal];
  ScopedLock lock(all->mutex);
  if (!pool.graphs.load(std::memory_order_relaxed)) {
    pool.ordinal = ordinal;
    pool.dev = static_cast<unsigned>(dev);
    pool.number = kMaxPools + static_cast<unsigned>(ordinal);
    pool.graphs.store(true, std::memory_order_release);
    all->graphs_in_use.store(true, std::memory_order_relaxed);
  }
  return &pool;
}

bool pool_made(CUmemoryPool handle, CUdevice ordinal) {
  Pools *all = pools.get();
  return all != nullptr && add_pool(*all, handle, ordinal) != nullptr;
}

Forgotten forget_pool(CUmemoryPool handle) {
  Pools *all = pools.get();
  Pool *pool = all != nullptr ? find_pool(*all, handle) : nullptr;
  if (pool == nullptr) return {};
  ScopedLock lock(pool->mutex);
  REAL(cuMemPoolTrimTo)(handle, 0);
  shrink_to_what_is_there(*pool);
  const Forgotten forgotten = {pool->ordinal, pool->dev, region::bytes_of(pool->charged - pool->in_progress), true};
  pool->charged = pool->in_progress;
  pool->last_growth = 0;
  pool->exported = 0;  // what of it is in use stays charged, and shared
  record(*pool);
  pool->handle.store(nullptr, std::memory_order_release);
  return forgotten;
}

void put_back_pool(CUmemoryPool handle, const Forgotten &forgotten) {
  Pool *pool = forgotten.known ? add_pool(*pools.get(), handle, forgotten.ordinal) : nullptr;
  if (pool == nullptr) return;
  ScopedLock lock(pool->mutex);
  pool->charged += region::units_for(forgotten.bytes);
  record(*pool);
}

void pool_exported(CUmemoryPool handle) {
  Pools *all = pools.get();
  Pool *pool = all != nullptr ? find_pool(*all, handle) : nullptr;
  if (pool == nullptr) return;
  ScopedLock lock(pool->mutex);
  if (pool->charged <= pool->exported) return;
  exported(pool->dev, region::bytes_of(pool->charged - pool->exported));
  pool->exported = pool->charged;
}

bool has_pools(unsigned dev) {
  Pools *all = pools.get();
  bool found = false;
  if (all != nullptr) for_each_pool(*all, [&](const Pool &pool) { found = found || pool.dev == dev; });
  return found;
}

ExclusivePools::ExclusivePools(unsigned dev) : dev_(dev) {
  Pools *all = pools.get();
  if (all == nullptr) return;
  Gate &gate = all->gates[dev];
  gate.exclusive.lock();
  gate.closed.store(true, std::memory_order_relaxed);
  for_each_pool(*all, [&](Pool &pool) {
    if (pool.dev != dev) return;
    ScopedLock lock(pool.mutex);
    while (pool.calls != 0) pool.quiet.wait(pool.mutex);
  });
}

ExclusivePools::~ExclusivePools() {
  Pools *all = pools.get();
  if (all == nullptr) return;
  Gate &gate = all->gates[dev_];
  gate.closed.store(false, std::memory_order_relaxed);
  gate.exclusive.unlock();
}

void PoolCharge::enter() {
  Gate &gate = pools.get()->gates[pool_.dev];
  while (!exclusive_ && __builtin_expect(gate.closed.load(std::memory_order_relaxed), false)) {
    pool_.mutex.unlock();
    { ScopedLock wait(gate.exclusive); }
    pool_.mutex.lock();
  }
  ++pool_.calls;
}

void PoolCharge::leave() {
  const Gate &gate = pools.get()->gates[pool_.dev];
  if (--pool_.calls == 0 && gate.closed.load(std::memory_order_relaxed)) pool_.quiet.signal();
  exclusive_.reset();
}

bool PoolCharge::take(std::uint64_t units) {
  grant_ = rank().try_to_reserve(pool_.dev, region::Kind::data, region::bytes_of(units));
  if (grant_ != region::Grant::granted) return false;
  reserved_ = units;
  pool_.charged += units;
  pool_.in_progress += units;
  return true;
}

bool PoolCharge::try_to_reserve() {
  ScopedLock lock(pool_.mutex);
  enter();
  const std::uint64_t asked = region::units_for(whole_blocks(bytes_, block_bytes(pool_.dev, pool_.ordinal)));
  // What it grew by last time is only a guess: what was asked for must fit, the rest is measured.
  if ((pool_.last_growth > asked && take(pool_.last_growth)) || take(asked) || is_there()) return true;
  leave();
  return false;
}

// Only the driver knows whether what is idle can be used for this. If it cannot, the pool grows, and the call is undone.
bool PoolCharge::is_there() {
  std::uint64_t there = 0, used = 0;
  guessed_ = reserved_by_driver(pool_, &there) && used_of(pool_, &used) && there >= used + region::units_for(bytes_);
  return guessed_;
}

bool PoolCharge::reserve_what_is_idle() {
  if (trim_pools(pool_.dev) && try_to_reserve()) return true;
  if (settle_before_refusing(pool_.dev) && try_to_reserve()) return true;
  exclusive_.emplace(pool_.dev);
  trim_pools(pool_.dev);
  if (try_to_reserve()) return true;
  refuse(pool_.dev, bytes_, grant_);
  return false;
}

bool PoolCharge::reserve() { return try_to_reserve() || reserve_what_is_idle(); }

bool PoolCharge::reserve_again() { return std::exchange(disturbed_, false) && reserve_what_is_idle(); }

// Several threads may be between reserve() and here. What is there is then partly theirs, and covered by what they have
// reserved; so only what exceeds all that is charged is missing, and only what nobody has reserved can be given back.
bool PoolCharge::settle() {
  ScopedLock lock(pool_.mutex);
  std::uint64_t there = 0;
  const std::uint64_t others = pool_.in_progress - reserved_;
  const std::uint64_t settled = pool_.charged - others;
  if (!reserved_by_driver(pool_, &there)) there = settled;  // then the guess must do
  if (there > pool_.charged) {
    const std::uint64_t more = there - pool_.charged;
    const region::Grant grant = rank().try_to_reserve(pool_.dev, region::Kind::data, region::bytes_of(more));
    if (grant != region::Grant::granted) {
      disturbed_ = !exclusive_ && (guessed_ || pool_.calls > 1);
      if (!disturbed_) refuse(pool_.dev, region::bytes_of(more), grant);
      return false;
    }
    pool_.charged += more;
  }
  const std::uint64_t before = settled - reserved_;
  if (there > before) pool_.last_growth = there - before;
  pool_.in_progress = others;
  reserved_ = 0;
  give_back(pool_, settled > there ? settled - there : 0);
  leave();
  return true;
}

void PoolCharge::finish(std::uint64_t taken_if_unknown) {
  ScopedLock lock(pool_.mutex);
  std::uint64_t there = 0;
  const std::uint64_t others = pool_.in_progress - reserved_;
  const std::uint64_t settled = pool_.charged - others;
  if (!reserved_by_driver(pool_, &there)) there = settled - reserved_ + taken_if_unknown;
  // Whoever else is in the middle of a call will see what is there, and is refused if it is too much.
  if (there > pool_.charged && others == 0) {
    const std::uint64_t more = there - pool_.charged;
    if (rank().force(pool_.dev, region::Kind::data, region::bytes_of(more)) == region::Grant::granted)
      pool_.charged += more;
  }
  pool_.in_progress = others;
  reserved_ = 0;
  give_back(pool_, settled > there ? settled - there : 0);
  leave();
}

void note_pools_may_shrink() {
  if (!pools_may_shrink.load(std::memory_order_relaxed)) pools_may_shrink.store(true, std::memory_order_relaxed);
}

void recheck_pools() {
  Pools *all = pools.get();
  if (all == nullptr || mode() != Mode::active) return;
  pools_may_shrink.store(false, std::memory_order_relaxed);
  for_each_pool(*all, [](Pool &pool) {
    ScopedLock lock(pool.mutex);
    shrink_to_what_is_there(pool);
    // What is idle may go at any later synchronisation: this one may have been another stream's.
    std::uint64_t used = 0;
    if (used_of(pool, &used) && used < pool.charged) note_pools_may_shrink();
  });
}

bool trim_pools(unsigned dev) {
  Pools *all = pools.get();
  if (all == nullptr) return false;
  bool gave = false;
  for_each_pool(*all, [&](Pool &pool) {
    if (pool.dev != dev) return;
    ScopedLock lock(pool.mutex);
    const CUmemoryPool handle = pool.handle.load(std::memory_order_relaxed);
    if (handle != nullptr) REAL(cuMemPoolTrimTo)(handle, 0);
    if (pool.graphs.load(std::memory_order_relaxed)) REAL(cuDeviceGraphMemTrim)(pool.ordinal);
    const std::uint64_t before = pool.charged;
    shrink_to_what_is_there(pool);
    gave = gave || pool.charged < before;
  });
  return gave;
}

}  // namespace vgpu::runtime
