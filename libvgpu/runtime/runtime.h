// The library's life in a process: inert, attached to the job's region, or shut because that failed.
#pragma once

#include <atomic>
#include <cstdint>

#include "region/region.h"

namespace vgpu {

enum class Mode : std::uint8_t {
  unknown,
  inert,   // nobody told us of a region, or the site lets processes go on without theirs
  closed,  // told of a region that cannot be attached to: nothing may be had
  active,
};

struct Runtime {
  Region region;
  Rank rank;
};

// Set before the mode says `active`, and never again. Inherited by forked children, which take a slot of their own.
extern std::atomic<Runtime *> runtime_state;
extern std::atomic<Mode> runtime_mode;

// Attaches, if there is something to attach to. What goes wrong is said there.
Mode start_runtime();

inline Mode mode() {
  const Mode now = runtime_mode.load(std::memory_order_acquire);
  return now != Mode::unknown ? now : start_runtime();
}

// Only in Mode::active.
inline Rank &rank() { return runtime_state.load(std::memory_order_relaxed)->rank; }
inline const Region &region() { return runtime_state.load(std::memory_order_relaxed)->region; }

// Whether this process's launches are metered: its job started with an SM limit. Known before anything is attached to,
// because it decides which functions a program is given.
bool launches_are_metered_now();
extern std::atomic<std::uint8_t> metered_state;  // 0: not asked yet, 1: no, 2: yes

inline bool launches_are_metered() {
  const std::uint8_t known = metered_state.load(std::memory_order_relaxed);
  return known != 0 ? known == 2 : launches_are_metered_now();
}

// The job's limit is below what the device has.
inline bool is_limited(unsigned dev) { return region().memory_limit(dev) < region().device(dev).identity.memory_bytes; }

}  // namespace vgpu
