#include "guard.h"

#include "accounting.h"
#include "steps.h"

namespace vgpu::region {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

namespace {

// Brings about what `fixed` says, and opens the guard again.
void finish(Usage usage, const GuardedLane &which, std::uint64_t fixed) {
  Word &guard = guard_of(usage, which);
  Lane &lane = usage.lane(which.number(), which.dev);
  const GuardWord decided = GuardWord::unpack(fixed);
  for (;;) {
    const LaneWord from = LaneWord::unpack(lane.current.load(memory_order_acquire));
    VGPU_STEP(finish_read_current);
    if (!decided.is_about(from)) break;  // applied

    std::uint64_t next = lane.next.load(memory_order_acquire);
    VGPU_STEP(finish_read_next);

    // Read AFTER both lane words: if it is still fixed, they are of the time since it was.
    const bool still_fixed = guard.load(memory_order_acquire) == fixed;
    VGPU_STEP(finish_read_guard);
    if (!still_fixed) return;

    // `next` may hold a growth that was refused and never committed: nobody needs it any more.
    const LaneWord to = {decided.target, from.next_seq()};
    if (next != to.pack()) {
      const bool published =
          lane.next.compare_exchange_strong(next, to.pack(), memory_order_acq_rel, memory_order_acquire);
      VGPU_STEP(finish_published);
      if (!published && next != to.pack()) continue;
    }
    commit(usage, which.dev, {which.number(), from, to}, nullptr);
    break;
  }
  // Release: hands the applied lane on to the owner, which reads the guard before it reads the lane.
  const std::uint64_t open = GuardWord{GuardWord::kOpen, decided.target, decided.seq + 1}.pack();
  guard.compare_exchange_strong(fixed, open, memory_order_acq_rel, memory_order_relaxed);
  VGPU_STEP(finish_opened);
}

}  // namespace

std::uint64_t close_guard(Usage usage, const GuardedLane &lane) {
  Word &guard = guard_of(usage, lane);
  std::uint64_t seen = guard.load(memory_order_acquire);
  VGPU_STEP(guard_read);
  for (;;) {
    switch (GuardWord::unpack(seen).state) {
      case GuardWord::kOpen: {
        // Acquire: the lane as whoever opened it left it.
        const bool closed = guard.compare_exchange_strong(seen, 0, memory_order_acq_rel, memory_order_acquire);
        VGPU_STEP(guard_closed);
        // Relaxed: nobody else changes it any more.
        if (closed) return idle_units(seen, usage.lane(lane.number(), lane.dev).current.load(memory_order_relaxed));
        break;
      }
      case GuardWord::kFixed:
        finish(usage, lane, seen);
        seen = guard.load(memory_order_acquire);
        VGPU_STEP(guard_read);
        break;
      default:
        return 0;
    }
  }
}

void open_guard(Usage usage, const GuardedLane &lane, std::uint64_t idle) {
  // Relaxed: we changed it last.
  const LaneWord now = LaneWord::unpack(usage.lane(lane.number(), lane.dev).current.load(memory_order_relaxed));
  const std::uint64_t target = now.units > idle ? now.units - idle : 0;
  // Release: whoever fixes it builds on the lane as we left it.
  guard_of(usage, lane).store(GuardWord{GuardWord::kOpen, target, now.seq}.pack(), memory_order_release);
  VGPU_STEP(guard_opened);
}

bool fix_lane(Usage usage, const GuardedLane &lane, std::uint64_t open, std::uint64_t target) {
  GuardWord word = GuardWord::unpack(open);
  if (word.state != GuardWord::kOpen || target > kMaxUnits) return false;
  word.state = GuardWord::kFixed;
  word.target = target;
  // Acquire: the lane as its owner left it, and `next` no older. Release: nothing of ours, but finishers come through here.
  const bool decided =
      guard_of(usage, lane).compare_exchange_strong(open, word.pack(), memory_order_acq_rel, memory_order_relaxed);
  VGPU_STEP(guard_fixed);
  if (decided) finish(usage, lane, word.pack());
  return decided;
}

std::uint64_t steal_idle_units(Usage usage, unsigned dev, unsigned slot) {
  const GuardedLane lane = {dev, slot, Guarded::other};
  Word &guard = guard_of(usage, lane);
  for (;;) {
    const std::uint64_t seen = guard.load(memory_order_acquire);
    VGPU_STEP(guard_read);
    if (GuardWord::unpack(seen).state == GuardWord::kFixed) {
      // What another thief has decided but not done is not there yet for whoever needs it.
      finish(usage, lane, seen);
      return 0;
    }
    const std::uint64_t idle = idle_units(seen, usage.lane(lane.number(), dev).current.load(memory_order_acquire));
    // The lane may be newer than the guard: then we know nothing.
    if (idle == 0 && guard.load(memory_order_acquire) == seen) return 0;
    if (idle != 0 && fix_lane(usage, lane, seen, GuardWord::unpack(seen).target)) return idle;
    // Its owner, or another thief, was faster.
  }
}

bool retire_guard(Usage usage, const GuardedLane &lane, std::uint64_t owner) {
  Word &guard = guard_of(usage, lane);
  std::uint64_t seen = guard.load(memory_order_acquire);
  VGPU_STEP(guard_read);
  for (;;) {
    const std::uint64_t state = GuardWord::unpack(seen).state;
    if (state == GuardWord::kFixed) {
      finish(usage, lane, seen);
      seen = guard.load(memory_order_acquire);
      VGPU_STEP(guard_read);
      continue;
    }
    if (state != GuardWord::kOpen) return true;
    // Read AFTER the guard: then the guard is the dead rank's. The slot's next owner can have the very same word only while
    // its lane was never used, and then it misses nothing by finding it closed.
    const bool recycled = usage.owner(lane.slot).load(memory_order_acquire) != owner;
    VGPU_STEP(retire_read_owner);
    if (recycled) return false;
    const bool closed = guard.compare_exchange_strong(seen, 0, memory_order_acq_rel, memory_order_acquire);
    VGPU_STEP(guard_retired);
    if (closed) return true;
  }
}

}  // namespace vgpu::region
