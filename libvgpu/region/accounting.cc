#include "accounting.h"

#include "base/backoff.h"
#include "guard.h"
#include "steps.h"

namespace vgpu::region {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

namespace {

// Twice as many make a pair of 8 processes cheaper still, by a fifth, and the slowest of a thousand twice as slow.
constexpr unsigned kPausesAfterALoss = 8;

}  // namespace

void help(Usage usage, unsigned dev, std::uint64_t seen) {
  const DeviceWord tag = DeviceWord::unpack(seen);
  Lane &lane = usage.lane(tag.lane, dev);

  // Acquire: pairs with whoever applied the operation; once it is applied there is nothing to do.
  std::uint64_t current = lane.current.load(memory_order_acquire);
  VGPU_STEP(help_read_current);
  const LaneWord from = LaneWord::unpack(current);
  if (!tag.is_tagged(tag.lane, from.next_seq())) return;

  // Acquire: pairs with the publication of `next`, which precedes the CAS that put this tag on the device word.
  const std::uint64_t next = lane.next.load(memory_order_acquire);
  VGPU_STEP(help_read_next);
  if (LaneWord::unpack(next).seq != from.next_seq()) return;  // applied, and its owner has moved on

  // If the tag was replaced, whoever replaced it applied the operation first; our `next` may belong to a later one.
  const bool still_tagged = usage.device(dev).total.load(memory_order_acquire) == seen;
  VGPU_STEP(help_read_total);
  if (!still_tagged) return;

  lane.current.compare_exchange_strong(current, next, memory_order_acq_rel, memory_order_relaxed);
  VGPU_STEP(help_applied);
}

namespace {

enum class By : std::uint8_t { owner, anybody };

template <By kBy>
Commit commit_by(Usage usage, unsigned dev, const Operation &operation, const Word *limit_bytes,
                 std::uint64_t *total_units) {
  Word &total = usage.device(dev).total;
  Word &current = usage.lane(operation.lane, dev).current;
  const std::uint64_t from = operation.from.pack();

  for (;;) {
    std::uint64_t seen = total.load(memory_order_acquire);
    VGPU_STEP(commit_read_total);

    // Must be read AFTER the device word: otherwise somebody could apply and replace our operation in between, and we
    // would commit it a second time.
    const bool applied = current.load(memory_order_acquire) != from;
    VGPU_STEP(commit_read_current);
    if (applied) return Commit::done;

    const DeviceWord tag = DeviceWord::unpack(seen);
    if (tag.is_tagged(operation.lane, operation.to.seq)) {
      help(usage, dev, seen);
      return Commit::done;
    }

    // The job's user can scribble on this file: a total that does not even contain the lane counts as the lane alone.
    const std::uint64_t others = tag.units > operation.from.units ? tag.units - operation.from.units : 0;
    const std::uint64_t units = others + operation.to.units;
    if (operation.to.units > operation.from.units) {
      if (units > kMaxUnits) return Commit::no_room;
      if (limit_bytes != nullptr) {
        // Acquire, and AFTER the device word: root stores a limit and then changes the device word, so that our CAS
        // fails if we may have seen the old limit.
        const std::uint64_t limit_units = limit_bytes->load(memory_order_acquire) / kUnitBytes;
        VGPU_STEP(commit_read_limit);
        if (units > limit_units) return Commit::no_room;
      }
    }

    // If it is one of this lane, it was applied: the lane's current word was read after it, and it is not the next one.
    if (tag.lane != operation.lane) {
      help(usage, dev, seen);  // BEFORE its tag is replaced: nobody could find that operation afterwards
    }

    const std::uint64_t made = DeviceWord{units, operation.lane, operation.to.seq}.pack();
    // Release: hands on the publication of `next` to whoever helps. Acquire: we build on the previous operation.
    if (total.compare_exchange_strong(seen, made, memory_order_acq_rel, memory_order_relaxed)) {
      VGPU_STEP(commit_swapped_total);
      if constexpr (kBy == By::owner) {
        // Helpers write the same, and nobody writes anything else before our next operation: no CAS is needed.
        current.store(operation.to.pack(), memory_order_release);
      } else {
        // Another may have applied it long ago, and the lane may have gone on since, even with another owner.
        std::uint64_t expected = from;
        current.compare_exchange_strong(expected, operation.to.pack(), memory_order_acq_rel, memory_order_relaxed);
      }
      VGPU_STEP(commit_applied);
      if (total_units != nullptr) *total_units = units;
      return Commit::done;
    }
    VGPU_STEP(commit_lost_total);
    // A process on another core was faster. Stepping aside for the time of a few operations lets it do them within its
    // own cache instead of passing the line to and fro: 8 processes on 2 cores get twice as far. Nobody is waited for.
    for (unsigned i = 0; i < kPausesAfterALoss; ++i) cpu_pause();
  }
}

}  // namespace

Commit commit(Usage usage, unsigned dev, const Operation &operation, const Word *limit_bytes,
              std::uint64_t *total_units) {
  return commit_by<By::anybody>(usage, dev, operation, limit_bytes, total_units);
}

// Flattened: calls between these small functions cost more than their atomics (a pair takes 50 ns instead of 70).
[[gnu::flatten]] LaneResult change_lane(Usage usage, unsigned dev, const LaneChange &change) {
  // Out of memory once, not again after every atomic.
  const std::uint64_t number = change.lane;
  const Word *limit_bytes = change.limit_bytes;
  Lane &lane = usage.lane(number, dev);
  // Relaxed: only its owner changes a lane, and the owner's last operation was applied before it returned.
  const LaneWord from = LaneWord::unpack(lane.current.load(memory_order_relaxed));
  VGPU_STEP(operation_read_current);
  LaneWord to = {0, from.next_seq()};
  if (change.grow) {
    if (change.units > kMaxUnits - from.units) return {};
    to.units = from.units + change.units;
  } else if (from.units > change.units) {
    to.units = from.units - change.units;
  }
  lane.next.store(to.pack(), memory_order_release);  // before the CAS in commit(), for whoever helps
  VGPU_STEP(operation_published);
  LaneResult result = {Commit::done, from.units, to.units, 0};
  result.commit = commit_by<By::owner>(usage, dev, {number, from, to}, limit_bytes, &result.total_units);
  return result;
}

void raise_peak(Usage usage, unsigned dev, std::uint64_t units) {
  Word &peak = usage.device(dev).peak_units;
  std::uint64_t seen = peak.load(memory_order_relaxed);
  // Writes the line only when there is something to write. Relaxed: a number of its own that only grows.
  while (units > seen) {
    if (peak.compare_exchange_weak(seen, units, memory_order_relaxed)) {
      VGPU_STEP(peak_raised);
      return;
    }
  }
}

std::uint64_t effective_units(std::uint64_t lane, std::uint64_t total, std::uint64_t current, std::uint64_t next) {
  const LaneWord applied = LaneWord::unpack(current);
  const LaneWord published = LaneWord::unpack(next);
  const bool pending =
      DeviceWord::unpack(total).is_tagged(lane, applied.next_seq()) && published.seq == applied.next_seq();
  return pending ? published.units : applied.units;
}

bool was_ever_used(Usage usage, unsigned slot, unsigned dev) {
  // Whole words, not their units: between our two loads a helper can apply an operation and a reclaimer that dies can
  // publish an empty `next`, and then neither word would show what the lane counts for.
  for (const Lane &lane : usage.lanes(slot, dev).kinds) {
    if ((lane.current.load(memory_order_acquire) | lane.next.load(memory_order_acquire)) != 0) return true;
  }
  return false;
}

namespace {

// False: the slot was recycled, somebody else has done all this.
bool empty_lane(Usage usage, unsigned dev, std::uint64_t number, unsigned slot, std::uint64_t owner) {
  Lane &lane = usage.lane(number, dev);
  for (;;) {
    const LaneWord from = LaneWord::unpack(lane.current.load(memory_order_acquire));
    VGPU_STEP(reclaim_read_current);
    if (from.units == 0) return true;

    std::uint64_t next = lane.next.load(memory_order_acquire);
    VGPU_STEP(reclaim_read_next);

    // Read AFTER both lane words: if the slot is still the dead rank's, they are the dead rank's too.
    const bool recycled = usage.owner(slot).load(memory_order_acquire) != owner;
    VGPU_STEP(reclaim_read_owner);
    if (recycled) return false;

    const LaneWord to = {0, from.next_seq()};
    if (next != to.pack()) {
      const bool published =
          lane.next.compare_exchange_strong(next, to.pack(), memory_order_acq_rel, memory_order_acquire);
      VGPU_STEP(reclaim_published);
      if (!published && next != to.pack()) continue;
    }
    constexpr std::uint64_t kByAnother = ~std::uint64_t{0};
    std::uint64_t left = kByAnother;
    commit(usage, dev, {number, from, to}, nullptr, &left);
    if (left != kByAnother) raise_peak(usage, dev, left + from.units);
    return true;
  }
}

// False: as above.
bool retire_guards(Usage usage, unsigned dev, unsigned slot, std::uint64_t owner) {
  if (!usage.has_appendix()) return true;
  return retire_guard(usage, {dev, slot, Guarded::context}, owner) &&
         retire_guard(usage, {dev, slot, Guarded::other}, owner);
}

}  // namespace

bool reclaim(Usage usage, unsigned slot, std::uint64_t owner) {
  for (unsigned dev = 0; dev < usage.ndev(); ++dev) {
    // The dead rank's last operation may be committed but not applied: without this its lane would look empty.
    const std::uint64_t total = usage.device(dev).total.load(memory_order_acquire);
    VGPU_STEP(reclaim_read_total);
    help(usage, dev, total);
    // BEFORE the lanes are emptied: or somebody could still fix one to another value under the same sequence number.
    if (!retire_guards(usage, dev, slot, owner)) return false;
    for (unsigned kind = 0; kind < kKinds; ++kind) {
      if (!empty_lane(usage, dev, lane_number(slot, kind), slot, owner)) return false;
    }
  }
  // Release: the next owner sees empty lanes. A failed CAS means that another reclaimer was first.
  std::uint64_t expected = owner;
  if (!usage.owner(slot).compare_exchange_strong(expected, OwnerWord::freed(owner), memory_order_acq_rel,
                                                 memory_order_relaxed)) {
    return false;
  }
  VGPU_STEP(reclaim_freed);
  if (usage.claim_hint().load(memory_order_relaxed) > slot) usage.claim_hint().store(slot, memory_order_relaxed);
  return true;
}

}  // namespace vgpu::region
