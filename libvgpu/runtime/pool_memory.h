// Memory that the driver keeps in pools: stream-ordered pools, and for each device the pool that its graphs share.
//
// The driver says how much a pool has reserved, so that is what is charged, whether it is in use or not. A call that may
// let a pool grow reserves what was asked for, or what the pool grew by last time, and is corrected afterwards; after one
// that may let it shrink, the pools are checked again. Before anybody is refused, what is not in use is given back.
#pragma once

#include <atomic>
#include <optional>

#include "base/mutex.h"
#include "driver/cuda_api.h"
#include "region/region.h"

namespace vgpu::runtime {

// What is known of one pool, for pool_memory.cc alone.
struct Pool {
  // Held through our own calls of the driver: another thread must not destroy the pool meanwhile.
  Mutex mutex;
  // Null: a free entry, or a device's graphs. Cleared, with the mutex held, before the driver destroys the pool.
  std::atomic<CUmemoryPool> handle;
  std::atomic<bool> graphs;  // set once
  CUdevice ordinal;          // set before either of them
  unsigned dev;              // the same
  unsigned number;           // the same; ours in the table of allocations
  // In units.
  std::uint64_t charged VGPU_GUARDED_BY(mutex);      // all of it is recorded, except what is in progress
  std::uint64_t in_progress VGPU_GUARDED_BY(mutex);  // reserved for calls that have not returned
  std::uint64_t recorded VGPU_GUARDED_BY(mutex);     // what the table of allocations says
  std::uint64_t last_growth VGPU_GUARDED_BY(mutex);
  std::uint64_t exported VGPU_GUARDED_BY(mutex);  // of `charged`: shared with other processes
  unsigned calls VGPU_GUARDED_BY(mutex);          // threads between reserving and settling
  Condition quiet;                                // `calls` has become 0 while the gate is closed
};

// What we know of a pool, whichever way the program got hold of it. Null: not one that takes memory of the job's
// devices: a pool on the host, an imported one, from which nothing can be allocated, or (then `elsewhere` says so) the
// pool of a device that is not the job's.
Pool *pool_of(CUmemoryPool handle, bool *elsewhere);
// The one that all graphs of a device share.
Pool *graph_pool(CUdevice ordinal);

// A pool that was made for a device of the job's. Others are the devices' own and found when first used. False: there is
// no place for one more.
bool pool_made(CUmemoryPool handle, CUdevice ordinal);
// Before the driver destroys one, whose name it may then give to another at once: what is idle in it is given back.
// What is in use stays, unseen, until it is freed: it is no longer recorded, but still charged, and the caller's to deal
// with. If the driver does not destroy the pool, it is put back.
struct Forgotten {
  CUdevice ordinal = 0;
  unsigned dev = 0;
  std::uint64_t bytes = 0;
  bool known = false;
};
Forgotten forget_pool(CUmemoryPool handle);
void put_back_pool(CUmemoryPool handle, const Forgotten &forgotten);

// Somebody else may open a pointer of the pool, and be counted for whatever part of the pool it is in.
void pool_exported(CUmemoryPool handle);

// This process has used a pool of the device, or its graphs have.
bool has_pools(unsigned dev);

// While one of these lives, no other thread of this process is between reserving for a pool of the device and knowing
// what the pool took. What such a thread has reserved is a guess, and nobody is refused because of a guess. Whoever needs
// several devices goes by their ordinals, so that no two threads wait for each other.
class ExclusivePools {
 public:
  explicit ExclusivePools(unsigned dev) VGPU_UNCHECKED_LOCKS;
  ~ExclusivePools() VGPU_UNCHECKED_LOCKS;
  ExclusivePools(const ExclusivePools &) = delete;
  ExclusivePools &operator=(const ExclusivePools &) = delete;

 private:
  unsigned dev_;
};

class PoolCharge {
 public:
  PoolCharge(Pool &pool, std::uint64_t bytes) : pool_(pool), bytes_(bytes) {}
  PoolCharge(const PoolCharge &) = delete;
  PoolCharge &operator=(const PoolCharge &) = delete;

  // Before the call. What lies idle in pools is given back before this refuses and logs why.
  bool reserve();
  // The call failed, or was undone.
  void cancel() { finish(0); }
  // False: the pool grew by more than the limit leaves. Undo the call, then cancel(); reserve_again() says whether the
  // call is worth another try, with the pools to itself and now that nothing is idle.
  bool settle();
  bool reserve_again();
  // For what cannot be undone.
  void settle_whatever_it_took() { finish(reserved_); }

 private:
  bool try_to_reserve();
  bool take(std::uint64_t units) VGPU_REQUIRES(pool_.mutex);
  bool is_there() VGPU_REQUIRES(pool_.mutex);
  bool reserve_what_is_idle();
  void enter() VGPU_REQUIRES(pool_.mutex);  // gives the mutex up to wait
  void leave() VGPU_REQUIRES(pool_.mutex);
  void finish(std::uint64_t taken_if_unknown);

  Pool &pool_;
  std::uint64_t bytes_;
  std::uint64_t reserved_ = 0;  // units
  region::Grant grant_ = region::Grant::granted;
  bool guessed_ = false;                     // it looked as if what is idle would do
  bool disturbed_ = false;                   // what did not fit may fit when no other thread is in a call
  std::optional<ExclusivePools> exclusive_;  // before the last try
};

// Something may have shrunk, now or at the next synchronisation.
extern std::atomic<bool> pools_may_shrink;
void note_pools_may_shrink();
void recheck_pools();

// After calls at which the driver gives back what was freed.
inline void recheck_pools_when_due() {
  if (__builtin_expect(pools_may_shrink.load(std::memory_order_relaxed), false)) recheck_pools();
}

// Gives back what lies idle in the pools of a device. False: there was nothing.
bool trim_pools(unsigned dev);

}  // namespace vgpu::runtime
