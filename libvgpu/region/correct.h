// Correcting what a living rank is charged for its contexts, by what NVML shows of it. A rank that sleeps, computes or waits
// for others never looks itself, and what it was charged was a guess.
//
//   a rank:   mark_rest() of every slot in use, NVML's list, correct_context() of each that the list shows
//   root:     Snapshot::read(), NVML's list, settle_region()
//
// A mark is evidence that nothing happened: a rank whose mark is the same after the list as before it is left in peace by the
// driver, or inside a call. To tell these apart, ask that the mark is also that of an earlier look.
#pragma once

#include "layout.h"

namespace vgpu::region {

// What of a slot changes with all that its rank does to its memory on one device.
struct RestMark {
  std::uint64_t owner = 0;
  std::uint64_t lanes[kKinds] = {};
  std::uint64_t context_guard = 0;
  std::uint64_t other_guard = 0;

  bool operator==(const RestMark &) const = default;

  // What it is charged beside contexts, without what is idle.
  std::uint64_t bytes_beside_context() const;
  std::uint64_t context_bytes() const;
};

RestMark mark_rest(const Usage &usage, unsigned dev, unsigned slot);

// What the ranks beside one have shared and are charged for.
std::uint64_t exported_beside(const Usage &usage, unsigned dev, unsigned slot);
// What of a rank's figure is in another rank's, too, and charged there.
std::uint64_t counted_twice(const Usage &usage, unsigned dev, unsigned slot);

// A rank as NVML showed it, and its mark from before that.
struct SeenRank {
  unsigned slot = 0;
  std::uint64_t bytes = 0;
  RestMark before;
};

// Charges the rank's contexts with what NVML shows beyond the rest and what is counted twice, whatever the limit says, but no less than `least_bytes`
// and never nothing. False: its mark has changed, it is within a call that makes a context, or there is nothing to correct.
bool correct_context(const Usage &usage, unsigned dev, const SeenRank &seen, std::uint64_t least_bytes);

}  // namespace vgpu::region
