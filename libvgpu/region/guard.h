// Guards: how others may change a lane while its owner lives, without waiting for it.
//
// Two lanes of a rank may be corrected by others: `context`, whose size NVML shows to everybody, and `other`, of which a part
// is idle: charged ahead, used by nobody. Each has a guard word beside it.
//
//   closed             only the owner may change the lane
//   open (target, s)   the lane is at rest at sequence number s. Others may fix it; of the lane, `target` units are in use
//   fixed (target, s)  decided: the lane becomes `target`. Anybody can, and the owner must, finish that; then it is open again
//
// The owner closes a guard before it changes the lane. Whoever fixed it published what to do in one word, so there is only one
// thing that any number of finishers can do, and a late one finds the guard, `next` or `current` moved on. That is how
// reclaim() empties the lanes of a dead rank, with the guard in the place of the owner word. Only with an appendix.
#pragma once

#include "layout.h"

namespace vgpu::region {

enum class Guarded : std::uint8_t { context, other };  // the lanes of these kinds

constexpr unsigned kind_of(Guarded which) { return which == Guarded::context ? 0 : kKinds - 1; }

struct GuardedLane {
  unsigned dev;
  unsigned slot;
  Guarded which;

  std::uint64_t number() const { return lane_number(slot, kind_of(which)); }
};

// What of a lane is idle while its guard is `guard`. Plain copies, the guard read before the lane's current word.
std::uint64_t idle_units(std::uint64_t guard, std::uint64_t current);

std::uint64_t idle_units_of(const Usage &usage, const GuardedLane &lane);

// The owner, one thread at a time: from here to open_guard() nobody else changes the lane. Returns what of it is idle.
std::uint64_t close_guard(const Usage &usage, const GuardedLane &lane);
void open_guard(const Usage &usage, const GuardedLane &lane, std::uint64_t idle);

// The owner, any thread: moves `units` from idle to used, or back as long as no more than `most` are idle. One CAS.
enum class Moved : std::uint8_t {
  yes,
  no,
  closed,  // another thread changes the lane: it must be waited for to see
};
Moved use_idle_units(const Usage &usage, const GuardedLane &lane, std::uint64_t units);
Moved add_idle_units(const Usage &usage, const GuardedLane &lane, std::uint64_t units, std::uint64_t most);

// Anybody: makes the lane `target` if its guard is still `open`, as it was seen. True in the one that decided it.
bool fix_lane(const Usage &usage, const GuardedLane &lane, std::uint64_t open, std::uint64_t target);
// Anybody: takes what is idle; how many units.
std::uint64_t steal_idle_units(const Usage &usage, unsigned dev, unsigned slot);

// Before a dead rank's lane is emptied: nothing is fixed and nothing can be. `owner` as for reclaim(); false: recycled.
bool retire_guard(const Usage &usage, const GuardedLane &lane, std::uint64_t owner);

}  // namespace vgpu::region
