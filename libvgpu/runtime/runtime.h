// What a process knows: its region, its contexts, its allocations, its pools, and its untracked memory. How that is found
// out and kept may be changed in this folder alone; what the job shares is region's, which calls are caught is hooks'.
//
// This header is the library's life in a process: inert, attached to the job's region, or closed because that failed.
#pragma once

#include <atomic>
#include <cstdint>

#include "region/region.h"

namespace vgpu::runtime {

enum class Mode : std::uint8_t {
  unknown,
  inert,   // nobody told us of a region, or the site lets processes go on without theirs
  closed,  // told of a region that cannot be attached to: nothing may be had
  active,
};

struct Runtime {
  region::Region region;
  region::Rank rank;
};

// Set before the mode says `active`, and never again. Inherited by forked children, which take a slot of their own.
extern std::atomic<Runtime *> runtime_state;
extern std::atomic<Mode> runtime_mode;

// Attaches, if there is something to attach to. What goes wrong is logged there.
Mode start_runtime();

inline Mode mode() {
  const Mode now = runtime_mode.load(std::memory_order_acquire);
  return now != Mode::unknown ? now : start_runtime();
}

// Only in Mode::active.
inline region::Rank &rank() { return runtime_state.load(std::memory_order_relaxed)->rank; }
inline const region::Region &job_region() { return runtime_state.load(std::memory_order_relaxed)->region; }

// The job's limit is below what the device has.
inline bool is_limited(unsigned dev) { return job_region().memory_limit(dev) < job_region().usable_bytes(dev); }

}  // namespace vgpu::runtime
