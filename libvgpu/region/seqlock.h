// The informational block of a slot: several words that belong together, one writer, readers that never hang.
//
// The writer makes `seq` odd, writes, makes it even. A reader takes two copies; if they agree and their `seq` is even, it
// is one picture. A writer that died or was stopped in between leaves `seq` odd for ever: readers back off a few
// times and then say so. Nothing that decides about memory is ever read this way.
#pragma once

#include <cstdint>

#include "base/backoff.h"
#include "layout.h"
#include "steps.h"

namespace vgpu::region {

struct InfoValues {
  std::uint64_t start_time = 0;
  std::uint64_t host_pid = 0;
  std::uint64_t launches = 0;
  std::uint64_t throttled_ns = 0;
  std::uint64_t refused = 0;
  std::uint64_t peak_units = 0;

  bool operator==(const InfoValues &) const = default;
};

// Called by the slot's rank only, under its private mutex.
inline void write_info(SlotInfo &block, const InfoValues &values) {
  // A predecessor in this slot may have died half-way and left seq odd.
  const std::uint64_t even = (block.seq.load(std::memory_order_relaxed) + 1) & ~std::uint64_t{1};
  block.seq.store(even + 1, std::memory_order_relaxed);
  VGPU_STEP(info_opened);
  // Release on every word: a reader that sees one of them also sees that seq was made odd before it.
  block.start_time.store(values.start_time, std::memory_order_release);
  block.host_pid.store(values.host_pid, std::memory_order_release);
  block.launches.store(values.launches, std::memory_order_release);
  VGPU_STEP(info_written);
  block.throttled_ns.store(values.throttled_ns, std::memory_order_release);
  block.refused.store(values.refused, std::memory_order_release);
  block.peak_units.store(values.peak_units, std::memory_order_release);
  block.seq.store(even + 2, std::memory_order_release);
  VGPU_STEP(info_closed);
}

// A copy of a block, by whatever means the reader has: loads from a mapping, or pread.
struct InfoCopy {
  std::uint64_t seq;
  InfoValues values;
};

// `second` was taken after `first`. The values too must agree: pread promises no order within one copy.
inline bool is_whole(const InfoCopy &first, const InfoCopy &second) {
  return first.seq == second.seq && first.seq % 2 == 0 && first.values == second.values;
}

// `copy` fills an InfoCopy, `seq` first, and returns false when it cannot.
template <typename Copy>
bool try_read_info(Copy copy, InfoValues *values) {
  Backoff backoff;
  for (;;) {
    InfoCopy first;
    InfoCopy second;
    if (!copy(&first) || !copy(&second)) return false;
    if (is_whole(first, second)) {
      *values = first.values;
      return true;
    }
    if (backoff.tries() == Backoff::kTries) return false;
    backoff.wait();
  }
}

inline bool copy_info(const SlotInfo &block, InfoCopy *copy) {
  // Acquire on every word: nothing later is read before it, the next copy's seq least of all.
  copy->seq = block.seq.load(std::memory_order_acquire);
  copy->values.start_time = block.start_time.load(std::memory_order_acquire);
  copy->values.host_pid = block.host_pid.load(std::memory_order_acquire);
  copy->values.launches = block.launches.load(std::memory_order_acquire);
  copy->values.throttled_ns = block.throttled_ns.load(std::memory_order_acquire);
  copy->values.refused = block.refused.load(std::memory_order_acquire);
  copy->values.peak_units = block.peak_units.load(std::memory_order_acquire);
  return true;
}

}  // namespace vgpu::region
