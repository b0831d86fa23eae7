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
#include "steps.h"

namespace vgpu::region {

enum class Guarded : std::uint8_t { context, other };  // the lanes of these kinds

constexpr unsigned kind_of(Guarded which) { return which == Guarded::context ? 0 : kKinds - 1; }

struct GuardedLane {
  unsigned dev;
  unsigned slot;
  Guarded which;

  std::uint64_t number() const { return lane_number(slot, kind_of(which)); }
};

inline Word &guard_of(Usage usage, const GuardedLane &lane) {
  return usage.slot_more(lane.slot, lane.dev).guards[static_cast<unsigned>(lane.which)];
}

// What of a lane is idle while its guard is `guard`. Plain copies, the guard read before the lane's current word.
constexpr std::uint64_t idle_units(std::uint64_t guard, std::uint64_t current) {
  const GuardWord word = GuardWord::unpack(guard);
  const LaneWord lane = LaneWord::unpack(current);
  if (word.state != GuardWord::kOpen || !word.is_about(lane) || lane.units < word.target) return 0;
  return lane.units - word.target;
}

// A lane's guard and what it guards, for who has looked them up already.
struct GuardedWords {
  Word &guard;
  const Word &current;
};
inline GuardedWords words_of(Usage usage, const GuardedLane &lane) {
  return {guard_of(usage, lane), usage.lane(lane.number(), lane.dev).current};
}

inline std::uint64_t idle_units_of(const GuardedWords &words) {
  // Acquire: the guard before the lane.
  const std::uint64_t guard = words.guard.load(std::memory_order_acquire);
  return idle_units(guard, words.current.load(std::memory_order_acquire));
}

// The owner, one thread at a time: from here to open_guard() nobody else changes the lane. Returns what of it is idle.
std::uint64_t close_guard(Usage usage, const GuardedLane &lane);
void open_guard(Usage usage, const GuardedLane &lane, std::uint64_t idle);

// The owner, any thread: moves `units` from idle to used, or back as long as no more than `most` are idle. One CAS.
enum class Moved : std::uint8_t {
  yes,
  no,
  closed,  // another thread changes the lane: it must be waited for to see
};

// `decide` says from the guard and what is idle what the target shall be; kStay: nothing is moved.
inline constexpr std::uint64_t kStay = ~std::uint64_t{0};

template <typename Decide>
Moved move_target(const GuardedWords &words, std::uint64_t *before, Decide decide) {
  std::uint64_t seen = words.guard.load(std::memory_order_acquire);
  VGPU_STEP(guard_read);
  for (;;) {
    GuardWord word = GuardWord::unpack(seen);
    if (__builtin_expect(word.state != GuardWord::kOpen, false)) return Moved::closed;
    *before = idle_units(seen, words.current.load(std::memory_order_acquire));
    word.target = decide(word.target, *before);
    if (__builtin_expect(word.target == kStay, false)) {
      // The lane may be newer than the guard: then we know nothing.
      const std::uint64_t again = words.guard.load(std::memory_order_acquire);
      if (again == seen) return Moved::no;
      seen = again;
      continue;
    }
    // If the guard is still the same, so is the lane: its sequence number is part of the word.
    const bool moved =
        words.guard.compare_exchange_strong(seen, word.pack(), std::memory_order_acq_rel, std::memory_order_acquire);
    VGPU_STEP(guard_moved);
    if (__builtin_expect(moved, true)) return Moved::yes;
  }
}

// `before`: how many were idle; only if it says yes.
inline Moved use_idle_units(const GuardedWords &words, std::uint64_t units, std::uint64_t *before) {
  return move_target(words, before, [units](std::uint64_t target, std::uint64_t idle) {
    return idle >= units ? target + units : kStay;
  });
}

inline Moved add_idle_units(const GuardedWords &words, std::uint64_t units, std::uint64_t most, std::uint64_t *before) {
  return move_target(words, before, [units, most](std::uint64_t target, std::uint64_t idle) {
    return idle + units <= most && target >= units ? target - units : kStay;
  });
}

// Anybody: makes the lane `target` if its guard is still `open`, as it was seen. True in the one that decided it.
bool fix_lane(Usage usage, const GuardedLane &lane, std::uint64_t open, std::uint64_t target);
// Anybody: takes what is idle; how many units.
std::uint64_t steal_idle_units(Usage usage, unsigned dev, unsigned slot);

// Before a dead rank's lane is emptied: nothing is fixed and nothing can be. `owner` as for reclaim(); false: recycled.
bool retire_guard(Usage usage, const GuardedLane &lane, std::uint64_t owner);

}  // namespace vgpu::region
