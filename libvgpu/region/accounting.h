// The protocol: how many processes share one exact total without ever waiting for each other.
//
// The device word carries the tag (lane, sequence number) of the last committed operation. Whoever commits next first
// completes that operation's lane word, so an operation whose process died or was stopped half-way is finished by
// somebody else. At every instant, for every device:
//
//   units(total) == sum over all lanes of effective(lane)
//   effective(lane) = next.units if total is tagged (lane, current.seq + 1) and next.seq == current.seq + 1,
//                     else current.units
//
// Publishing `next` changes no effective value; the CAS on `total` changes exactly one, by the amount it adds to the
// total; the CAS on `current` changes none. tests/model proves it; docs/architecture.md argues it.
#pragma once

#include "layout.h"

namespace vgpu::region {

struct Operation {
  std::uint64_t lane;
  LaneWord from;  // the lane's current word when the operation was made
  LaneWord to;    // already published in the lane's next word
};

enum class Commit : std::uint8_t { done, no_room };

// Finishes the lane half of the operation that committed the device word `seen`. Idempotent.
void help(Usage usage, unsigned dev, std::uint64_t seen);

// Makes a published operation count, exactly once however many processes try. With a limit (in bytes), only if the new
// total stays within it. `total_units`, if given, gets the total this call made.
Commit commit(Usage usage, unsigned dev, const Operation &operation, const Word *limit_bytes,
              std::uint64_t *total_units = nullptr);

// One whole operation of a lane's owner: add `units` to the lane, or take at most that much away. Only one at a time per
// lane; the limit as for commit().
struct LaneChange {
  std::uint64_t lane;
  bool grow;
  std::uint64_t units;
  const Word *limit_bytes = nullptr;
};
struct LaneResult {
  Commit commit = Commit::no_room;
  std::uint64_t units_before = 0;  // of the lane
  std::uint64_t units_after = 0;
  std::uint64_t total_units = 0;  // of the device, as this operation made it
};
LaneResult change_lane(Usage usage, unsigned dev, const LaneChange &change);

// Raises the device's peak to a total that was there; by whoever then made it less.
void raise_peak(Usage usage, unsigned dev, std::uint64_t units);

// What a lane counts for while the device word is `total`. Both words of the lane are plain copies.
std::uint64_t effective_units(std::uint64_t lane, std::uint64_t total, std::uint64_t current, std::uint64_t next);

// False: the slot never counted for memory on the device, so a sweep can pass it by.
bool was_ever_used(Usage usage, unsigned slot, unsigned dev);

// Gives back all that a slot holds and then the slot itself. `owner` is its full owner word, PROVEN dead. Any number of
// processes may do this at once, also long after the slot went to somebody else. True in the one that freed the slot.
bool reclaim(Usage usage, unsigned slot, std::uint64_t owner);

}  // namespace vgpu::region
