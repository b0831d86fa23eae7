// The words of the SM limiter that hold more than one value. All zeroes is every word's initial state.
#pragma once

#include "words.h"

namespace vgpu::region {

// The job's user can write any number into their own words: a later `tat` than this is not believed.
inline constexpr std::uint64_t kLargestDebtNs = 600'000'000'000;

// What a launch is charged is its measured cost times `ratio`, which the elected rank learns from NVML.
struct TrimWord {
  using Epoch = Field<0, 32>;
  using Shared = Field<32, 1>;
  using Ratio = Field<33, 31>;
  static constexpr std::uint64_t kOne = 1 << 16;

  std::uint64_t ratio = kOne;  // in 1/65536; stored as 0 when it is 1
  bool shared = false;         // processes that are not the job's compute on the device
  std::uint64_t epoch = 0;     // whose word it is: see LeaseWord

  static constexpr TrimWord unpack(std::uint64_t word) {
    const std::uint64_t ratio = Ratio::get(word);
    return {ratio != 0 ? ratio : kOne, Shared::get(word) != 0, Epoch::get(word)};
  }
  constexpr std::uint64_t pack() const {
    return Ratio::put(ratio == kOne ? 0 : ratio) | Shared::put(shared) | Epoch::put(epoch);
  }
};

// Which rank is elected, and when it last showed up.
struct LeaseWord {
  using Slot = Field<0, 9>;
  using Epoch = Field<9, 19>;
  using Stamp = Field<28, 36>;
  static_assert(kSlots == Slot::kMask + 1);

  std::uint64_t slot = 0;
  std::uint64_t epoch = 0;  // grows by one with every election
  std::uint64_t stamp = 0;  // ms of CLOCK_MONOTONIC

  static constexpr LeaseWord unpack(std::uint64_t word) {
    return {Slot::get(word), Epoch::get(word), Stamp::get(word)};
  }
  constexpr std::uint64_t pack() const { return Slot::put(slot) | Epoch::put(epoch) | Stamp::put(stamp); }
};

// How many ranks launched in this period and in the one before. A rank counts itself once in a period, so that one that
// died, stopped or has nothing to do is forgotten by itself.
struct ContendersWord {
  using Count = Field<0, 16>;
  using Before = Field<16, 16>;
  using Period = Field<32, 32>;

  std::uint64_t count = 0;
  std::uint64_t before = 0;
  std::uint64_t period = 0;

  static constexpr ContendersWord unpack(std::uint64_t word) {
    return {Count::get(word), Before::get(word), Period::get(word)};
  }
  constexpr std::uint64_t pack() const { return Count::put(count) | Before::put(before) | Period::put(period); }
};

}  // namespace vgpu::region
