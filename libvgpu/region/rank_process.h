// What a process knows of itself as a rank: shared by the files that Rank is made of.
#pragma once

#include "base/mutex.h"
#include "guard.h"
#include "region.h"

namespace vgpu::region {

// Lives in pages that the kernel wipes in a forked child; see base/wiped.h. All zeroes means detached and unlocked.
struct Rank::Process {
  // Serialises this process's operations on one device: a lane has one owner, not one per thread.
  struct Device {
    Mutex mutex;
    std::atomic<std::uint64_t> held_units;  // in lanes that nobody else changes; written under `mutex`
    std::atomic<std::uint64_t> peak_units;  // the most it held of every kind; written under Process::mutex
    unsigned contexts_in_progress VGPU_GUARDED_BY(mutex);  // while it is not 0, the guard of contexts stays closed
    std::atomic<std::uint64_t> seen_exits;                 // any thread; what the last memory query knew
    std::atomic<std::uint64_t> swept_ms;                   // any thread
    std::atomic<std::uint64_t> thorough_ms;                // any thread; when a refusal last looked hard
  };

  Mutex mutex;                       // attach, leave, and `info`
  std::atomic<std::uint64_t> owner;  // our owner word; 0: detached. Written under `mutex`, read by every operation
  unsigned slot;                     // written before `owner`
  Fault trouble VGPU_GUARDED_BY(mutex);
  std::uint64_t tried_ms VGPU_GUARDED_BY(mutex);  // when it last looked for a slot
  InfoValues info VGPU_GUARDED_BY(mutex);         // the shared block is a copy of it
  Device devices[kMaxDevices];
};

template <typename Update>
void Rank::update_info(Process &process, Update update) {
  ScopedLock lock(process.mutex);
  update(process.info);
  write_info(region_->usage().info(process.slot), process.info);
}

}  // namespace vgpu::region
