// What a process knows of itself as a rank: shared by the files that Rank is made of.
#pragma once

#include "base/mutex.h"
#include "guard.h"
#include "region.h"

namespace vgpu::region {

// Lives in pages that the kernel wipes in a forked child; see base/wiped.h. All zeroes means detached and unlocked.
struct Rank::Process {
  // Serialises this process's operations on one device: a lane has one owner, not one per thread. None of them waits for
  // anything while it holds the mutex.
  struct Device {
    FastMutex mutex;
    // Our own words of the region. Written before `owner`; `more` is null in a region without an appendix.
    SlotLanes *lanes;
    SlotMore *more;
    GuardedWords blocks() const {
      return {more->guards[static_cast<unsigned>(Guarded::other)], lanes->kinds[kind_of(Guarded::other)].current};
    }
    std::atomic<std::uint64_t> held_units;  // in lanes that nobody else changes; written under `mutex`
    std::atomic<std::uint64_t> peak_units;  // the most it held of every kind; written under Process::mutex
    // What is known to be in the peaks: nothing was charged since, and of lane `other` no more than this was in use.
    std::atomic<bool> grown;                               // any thread
    std::atomic<std::uint64_t> noted_in_use;               // any thread
    unsigned contexts_in_progress VGPU_GUARDED_BY(mutex);  // while it is not 0, the guard of contexts stays closed
    std::atomic<std::uint64_t> seen_exits;                 // any thread; what the last memory query knew
    std::atomic<std::uint64_t> swept_ms;                   // any thread
    std::atomic<std::uint64_t> thorough_ms;                // any thread; when a refusal last looked hard
  };

  Mutex mutex;                       // attach, leave, and `info`
  std::atomic<std::uint64_t> owner;  // our owner word; 0: detached. Written under `mutex`, read by every operation
  unsigned slot;                     // written before `owner`
  const Word *shared_owner;          // the region's word of it; written before `owner`
  Fault trouble VGPU_GUARDED_BY(mutex);
  std::uint64_t tried_ms VGPU_GUARDED_BY(mutex);  // when it last looked for a slot
  InfoValues info VGPU_GUARDED_BY(mutex);         // the shared block is a copy of it
  SelfIdentity self VGPU_GUARDED_BY(mutex);       // asked for once; PID 0: not yet
  Device devices[kMaxDevices];
};

// Null: this process has no slot, and could not get one.
inline Rank::Process *Rank::attached() {
  const std::uint64_t mine = process_->owner.load(std::memory_order_acquire);
  if (__builtin_expect(mine != 0, true)) {
    const std::uint64_t now = process_->shared_owner->load(std::memory_order_relaxed);
    if (__builtin_expect(((now ^ mine) & ~OwnerWord::State::put(OwnerWord::State::kMask)) == 0, true)) return process_;
  }
  return attach_again(mine);
}

inline std::uint64_t Rank::held_units(const Process &process, unsigned dev) {
  const SlotLanes &lanes = *process.devices[dev].lanes;
  std::uint64_t units = process.devices[dev].held_units.load(std::memory_order_relaxed);
  for (const Kind kind : {Kind::context, Kind::other}) {
    // Acquire: others may have changed it.
    const Word &current = lanes.kinds[static_cast<unsigned>(kind)].current;
    units += LaneWord::unpack(current.load(std::memory_order_acquire)).units;
  }
  return units;
}

template <typename Update>
void Rank::update_info(Process &process, Update update) {
  ScopedLock lock(process.mutex);
  update(process.info);
  write_info(region_->usage().info(process.slot), process.info);
}

}  // namespace vgpu::region
