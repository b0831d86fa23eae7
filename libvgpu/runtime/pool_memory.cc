#include "pool_memory.h"

#include <algorithm>
#include <utility>

#include "allocations.h"
#include "base/wiped.h"
#include "devices.h"
#include "driver/table.h"
#include "refusal.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

std::atomic<bool> stock_may_shrink{false};

struct Stock {
  // Held through our own calls of the driver: another thread must not destroy the pool meanwhile.
  pthread_mutex_t mutex;
  std::atomic<CUmemoryPool> pool;  // null: free, or a device's graphs. Cleared, under `mutex`, before it is destroyed
  std::atomic<bool> graphs;        // set once
  CUdevice ordinal;                // set before either of them
  unsigned dev;                    // the same
  unsigned number;                 // the same; ours in the table of allocations
  // Under `mutex`, in units.
  std::uint64_t charged;      // all of it in the table of allocations, except what is in progress
  std::uint64_t in_progress;  // reserved for calls that have not returned
  std::uint64_t recorded;     // what the table of allocations says
  std::uint64_t last_growth;
  unsigned calls;        // threads between reserving and settling
  pthread_cond_t quiet;  // `calls` has become 0 while somebody stops the others
};

namespace {

constexpr unsigned kMaxPools = 256;

struct Gate {
  pthread_mutex_t alone;      // held by the thread that has stopped the others
  std::atomic<bool> stopped;  // there is one. Set before, and read under, each stock's mutex: no thread slips by
};

struct Stocks {
  pthread_mutex_t mutex;       // adding and removing
  std::atomic<unsigned> high;  // no pool in use at or beyond this
  Stock pools[kMaxPools];
  Stock graphs[region::kMaxDevices];  // by ordinal
  std::atomic<bool> graphs_in_use;    // some graph of this process allocates
  Gate gates[region::kMaxDevices];    // by device of the region
};
constinit WipedOnFork<Stocks> stocks;

std::uint64_t key_of(const Stock &stock) {
  return allocation_key(Handle::ours, (std::uint64_t{1} << 60) | stock.number);
}

// Under stock.mutex.
bool ask(const Stock &stock, CUmemPool_attribute pool_question, CUgraphMem_attribute graph_question,
         std::uint64_t *units) {
  cuuint64_t bytes = 0;
  const CUresult result =
      stock.graphs.load(std::memory_order_relaxed)
          ? REAL(cuDeviceGetGraphMemAttribute)(stock.ordinal, graph_question, &bytes)
          : REAL(cuMemPoolGetAttribute)(stock.pool.load(std::memory_order_relaxed), pool_question, &bytes);
  *units = region::units_for(bytes);
  return result == CUDA_SUCCESS;
}

bool reserved_by_driver(const Stock &stock, std::uint64_t *units) {
  return ask(stock, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, units);
}

bool used_of(const Stock &stock, std::uint64_t *units) {
  return ask(stock, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, units);
}

// Under stock.mutex, after the charge has changed. A pool that has what it is asked for stays as it is.
void record(Stock &stock) {
  Allocation old;
  const std::uint64_t settled = stock.charged - stock.in_progress;
  if (settled == stock.recorded) return;
  if (settled == 0) {
    take_allocation(key_of(stock), &old);
  } else if (!add_allocation(key_of(stock), {settled, stock.dev, 0, false}, &old)) {
    return;
  }
  stock.recorded = settled;
}

void give_back(Stock &stock, std::uint64_t units) {
  stock.charged -= units;
  record(stock);
  if (units != 0) rank().release(stock.dev, region::Kind::data, region::bytes_of(units));
}

// Under stock.mutex: after a look that finds less than is charged.
void shrink_to_what_is_there(Stock &stock) {
  std::uint64_t there = 0;
  if (!reserved_by_driver(stock, &there)) return;
  const std::uint64_t settled = stock.charged - stock.in_progress;
  if (there < settled) give_back(stock, settled - there);
}

Stock *find_pool(Stocks &all, CUmemoryPool pool) {
  const unsigned high = all.high.load(std::memory_order_acquire);
  for (unsigned i = 0; i < high; ++i) {
    if (all.pools[i].pool.load(std::memory_order_acquire) == pool) return &all.pools[i];
  }
  return nullptr;
}

Stock *add_pool(Stocks &all, CUmemoryPool pool, CUdevice ordinal) {
  const int dev = region_device(ordinal);
  if (dev == kNotInJob) return nullptr;
  ScopedLock lock(all.mutex);
  if (Stock *known = find_pool(all, pool)) return known;
  const unsigned high = all.high.load(std::memory_order_relaxed);
  unsigned index = 0;
  while (index < high && all.pools[index].pool.load(std::memory_order_relaxed) != nullptr) ++index;
  if (index == kMaxPools) return nullptr;
  Stock &stock = all.pools[index];
  stock.ordinal = ordinal;
  stock.dev = static_cast<unsigned>(dev);
  stock.number = index;
  stock.last_growth = 0;
  stock.pool.store(pool, std::memory_order_release);
  if (index == high) all.high.store(high + 1, std::memory_order_release);
  return &stock;
}

template <typename Work>
void for_each_stock(Stocks &all, Work work) {
  const unsigned high = all.high.load(std::memory_order_acquire);
  for (unsigned i = 0; i < high; ++i) {
    if (all.pools[i].pool.load(std::memory_order_acquire) != nullptr) work(all.pools[i]);
  }
  if (!all.graphs_in_use.load(std::memory_order_relaxed)) return;
  for (Stock &stock : all.graphs) {
    if (stock.graphs.load(std::memory_order_acquire)) work(stock);
  }
}

}  // namespace

Stock *stock_of(CUmemoryPool pool, bool *elsewhere) {
  Stocks *all = stocks.get();
  *elsewhere = false;
  if (all == nullptr || pool == nullptr) return nullptr;
  if (Stock *known = find_pool(*all, pool)) return known;
  for (CUdevice ordinal = 0; ordinal < static_cast<CUdevice>(region::kMaxDevices); ++ordinal) {
    CUmemoryPool own = nullptr;
    const CUresult result = REAL(cuDeviceGetDefaultMemPool)(&own, ordinal);
    if (result == CUDA_SUCCESS && own == pool) {
      Stock *added = add_pool(*all, pool, ordinal);
      *elsewhere = added == nullptr;
      return added;
    }
    if (result == CUDA_ERROR_INVALID_DEVICE) break;
  }
  return nullptr;
}

Stock *graph_stock(CUdevice ordinal) {
  Stocks *all = stocks.get();
  const int dev = region_device(ordinal);
  if (all == nullptr || dev == kNotInJob) return nullptr;
  Stock &stock = all->graphs[ordinal];
  ScopedLock lock(all->mutex);
  if (!stock.graphs.load(std::memory_order_relaxed)) {
    stock.ordinal = ordinal;
    stock.dev = static_cast<unsigned>(dev);
    stock.number = kMaxPools + static_cast<unsigned>(ordinal);
    stock.graphs.store(true, std::memory_order_release);
    all->graphs_in_use.store(true, std::memory_order_relaxed);
  }
  return &stock;
}

bool pool_made(CUmemoryPool pool, CUdevice ordinal) {
  Stocks *all = stocks.get();
  return all != nullptr && add_pool(*all, pool, ordinal) != nullptr;
}

Forgotten forget_pool(CUmemoryPool pool) {
  Stocks *all = stocks.get();
  Stock *stock = all != nullptr ? find_pool(*all, pool) : nullptr;
  if (stock == nullptr) return {};
  ScopedLock lock(stock->mutex);
  REAL(cuMemPoolTrimTo)(pool, 0);
  shrink_to_what_is_there(*stock);
  const Forgotten forgotten = {stock->ordinal, stock->dev, region::bytes_of(stock->charged - stock->in_progress), true};
  stock->charged = stock->in_progress;
  record(*stock);
  stock->pool.store(nullptr, std::memory_order_release);
  return forgotten;
}

void put_back_pool(CUmemoryPool pool, const Forgotten &forgotten) {
  Stock *stock = forgotten.known ? add_pool(*stocks.get(), pool, forgotten.ordinal) : nullptr;
  if (stock == nullptr) return;
  ScopedLock lock(stock->mutex);
  stock->charged += region::units_for(forgotten.bytes);
  record(*stock);
}

OthersStopped::OthersStopped(unsigned dev) : dev_(dev) {
  Stocks *all = stocks.get();
  if (all == nullptr) return;
  Gate &gate = all->gates[dev];
  pthread_mutex_lock(&gate.alone);
  gate.stopped.store(true, std::memory_order_relaxed);
  for_each_stock(*all, [&](Stock &stock) {
    if (stock.dev != dev) return;
    ScopedLock lock(stock.mutex);
    while (stock.calls != 0) pthread_cond_wait(&stock.quiet, &stock.mutex);
  });
}

OthersStopped::~OthersStopped() {
  Stocks *all = stocks.get();
  if (all == nullptr) return;
  Gate &gate = all->gates[dev_];
  gate.stopped.store(false, std::memory_order_relaxed);
  pthread_mutex_unlock(&gate.alone);
}

// Under stock.mutex, which is given up to wait.
void StockCharge::enter() {
  Gate &gate = stocks.get()->gates[stock_.dev];
  while (!alone_ && __builtin_expect(gate.stopped.load(std::memory_order_relaxed), false)) {
    pthread_mutex_unlock(&stock_.mutex);
    { ScopedLock wait(gate.alone); }
    pthread_mutex_lock(&stock_.mutex);
  }
  ++stock_.calls;
}

// Under stock.mutex.
void StockCharge::leave() {
  const Gate &gate = stocks.get()->gates[stock_.dev];
  if (--stock_.calls == 0 && gate.stopped.load(std::memory_order_relaxed)) pthread_cond_signal(&stock_.quiet);
  alone_.reset();
}

// Under stock.mutex.
bool StockCharge::take(std::uint64_t units) {
  grant_ = rank().try_to_reserve(stock_.dev, region::Kind::data, region::bytes_of(units));
  if (grant_ != region::Grant::granted) return false;
  reserved_ = units;
  stock_.charged += units;
  stock_.in_progress += units;
  return true;
}

bool StockCharge::try_to_reserve() {
  ScopedLock lock(stock_.mutex);
  enter();
  const std::uint64_t asked = region::units_for(bytes_);
  // What it grew by last time is only a guess: what was asked for must fit, the rest is measured.
  if ((stock_.last_growth > asked && take(stock_.last_growth)) || take(asked) || is_there()) return true;
  leave();
  return false;
}

// Only the driver knows whether what is idle can be used for this. If it cannot, the stock grows, and the call is undone.
bool StockCharge::is_there() {
  std::uint64_t there = 0, used = 0;
  guessed_ = reserved_by_driver(stock_, &there) && used_of(stock_, &used) && there >= used + region::units_for(bytes_);
  return guessed_;
}

bool StockCharge::reserve_what_is_idle() {
  if (trim_stock(stock_.dev) && try_to_reserve()) return true;
  if (settle_before_refusing(stock_.dev) && try_to_reserve()) return true;
  alone_.emplace(stock_.dev);
  trim_stock(stock_.dev);
  if (try_to_reserve()) return true;
  refuse(stock_.dev, bytes_, grant_);
  return false;
}

bool StockCharge::reserve() { return try_to_reserve() || reserve_what_is_idle(); }

bool StockCharge::reserve_again() { return std::exchange(disturbed_, false) && reserve_what_is_idle(); }

// Several threads may be between reserve() and here. What is there is then partly theirs, and covered by what they have
// reserved; so only what exceeds all that is charged is missing, and only what nobody has reserved can be given back.
bool StockCharge::settle() {
  ScopedLock lock(stock_.mutex);
  std::uint64_t there = 0;
  const std::uint64_t others = stock_.in_progress - reserved_;
  const std::uint64_t settled = stock_.charged - others;
  if (!reserved_by_driver(stock_, &there)) there = settled;  // then the guess must do
  if (there > stock_.charged) {
    const std::uint64_t more = there - stock_.charged;
    const region::Grant grant = rank().try_to_reserve(stock_.dev, region::Kind::data, region::bytes_of(more));
    if (grant != region::Grant::granted) {
      disturbed_ = !alone_ && (guessed_ || stock_.calls > 1);
      if (!disturbed_) refuse(stock_.dev, region::bytes_of(more), grant);
      return false;
    }
    stock_.charged += more;
  }
  const std::uint64_t before = settled - reserved_;
  if (there > before) stock_.last_growth = there - before;
  stock_.in_progress = others;
  reserved_ = 0;
  give_back(stock_, settled > there ? settled - there : 0);
  leave();
  return true;
}

void StockCharge::finish(std::uint64_t taken_if_unknown) {
  ScopedLock lock(stock_.mutex);
  std::uint64_t there = 0;
  const std::uint64_t others = stock_.in_progress - reserved_;
  const std::uint64_t settled = stock_.charged - others;
  if (!reserved_by_driver(stock_, &there)) there = settled - reserved_ + taken_if_unknown;
  // Whoever else is in the middle of a call will see what is there, and is refused if it is too much.
  if (there > stock_.charged && others == 0) {
    const std::uint64_t more = there - stock_.charged;
    if (rank().force(stock_.dev, region::Kind::data, region::bytes_of(more)) == region::Grant::granted)
      stock_.charged += more;
  }
  stock_.in_progress = others;
  reserved_ = 0;
  give_back(stock_, settled > there ? settled - there : 0);
  leave();
}

void note_stock_may_shrink() {
  if (!stock_may_shrink.load(std::memory_order_relaxed)) stock_may_shrink.store(true, std::memory_order_relaxed);
}

void look_at_stock() {
  Stocks *all = stocks.get();
  if (all == nullptr || mode() != Mode::active) return;
  stock_may_shrink.store(false, std::memory_order_relaxed);
  for_each_stock(*all, [](Stock &stock) {
    ScopedLock lock(stock.mutex);
    shrink_to_what_is_there(stock);
    // What is idle may go at any later synchronisation: this one may have been another stream's.
    std::uint64_t used = 0;
    if (used_of(stock, &used) && used < stock.charged) note_stock_may_shrink();
  });
}

bool trim_stock(unsigned dev) {
  Stocks *all = stocks.get();
  if (all == nullptr) return false;
  bool gave = false;
  for_each_stock(*all, [&](Stock &stock) {
    if (stock.dev != dev) return;
    ScopedLock lock(stock.mutex);
    const CUmemoryPool pool = stock.pool.load(std::memory_order_relaxed);
    if (pool != nullptr) REAL(cuMemPoolTrimTo)(pool, 0);
    if (stock.graphs.load(std::memory_order_relaxed)) REAL(cuDeviceGraphMemTrim)(stock.ordinal);
    const std::uint64_t before = stock.charged;
    shrink_to_what_is_there(stock);
    gave = gave || stock.charged < before;
  });
  return gave;
}

}  // namespace vgpu::runtime
