// The words of the SM limiter that hold more than one value. All zeroes is every word's initial state.
#pragma once

#include <bit>
#include <cstdint>

#include "words.h"

namespace vgpu::region {

// The job's user can write any number into the job's words: a `tat` further than this in the future (10 minutes) is not
// believed, and counts as now. Without it a wild number would stop the job for good. Smaller: a job could escape its
// limit by kernels whose debt is longer than this, 6 s of GPU time at a share of 1 %. Larger: a wild number stops it
// longer.
inline constexpr std::uint64_t kLargestDebtNs = 600'000'000'000;

// A launch moves `tat` by its measured cost times `ratio`, which the elected rank learns from NVML.
struct TrimWord {
  using Epoch = Field<0, 32>;
  using Shared = Field<32, 1>;
  using Ratio = Field<33, 31>;
  static constexpr std::uint64_t kOne = 1 << 16;

  std::uint64_t ratio = kOne;  // in 1/65536; stored as 0 when it is 1
  bool shared = false;         // processes that are not the job's compute on the device
  std::uint64_t epoch = 0;     // of the leader that may write it: see LeaseWord

  static constexpr TrimWord unpack(std::uint64_t word) {
    const std::uint64_t ratio = Ratio::get(word);
    return {ratio != 0 ? ratio : kOne, Shared::get(word) != 0, Epoch::get(word)};
  }
  constexpr std::uint64_t pack() const {
    return Ratio::put(ratio == kOne ? 0 : ratio) | Shared::put(shared) | Epoch::put(epoch);
  }
};

// Whether NVML's word on how busy the job is reaches it, and why not.
enum class FeedbackState : std::uint8_t {
  not_asked,    // no rank had a reason to yet
  nvml,         // it does
  no_nvml,      // there is none, or it does not know the device
  unsupported,  // it does not tell how busy processes keep this device
  unnamed,      // it does not speak of the job's processes, or by numbers that they do not know to be theirs
};

// The job's user can write any number.
constexpr FeedbackState feedback_state(std::uint64_t word) {
  return word <= static_cast<std::uint64_t>(FeedbackState::unnamed) ? static_cast<FeedbackState>(word)
                                                                    : FeedbackState::not_asked;
}

// Which rank is elected, and when it last renewed its lease.
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

// How many ranks launched in this period and in the one before. A rank counts itself once in a period, so that a rank
// that died, stopped or has nothing to launch drops out of the count.
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

// In which parts of a period the job had work on a device, see sm/coverage.h.
struct CoverageWord {
  static constexpr unsigned kQuanta = 48;
  using Bits = Field<0, kQuanta>;
  using Epoch = Field<kQuanta, 16>;

  std::uint64_t bits = 0;
  std::uint64_t epoch = 0;

  static constexpr CoverageWord unpack(std::uint64_t word) { return {Bits::get(word), Epoch::get(word)}; }
  constexpr std::uint64_t pack() const { return Bits::put(bits) | Epoch::put(epoch); }
};

// Two sums that fade together: what was charged, and what the same launches would have cost one by one. In one word, so
// that any rank can add to both at once.
struct PaceWord {
  float charged_ns = 0;
  float cost_ns = 0;

  // The job's user can write any number: what is no sum of times is none.
  static constexpr PaceWord unpack(std::uint64_t word) {
    const auto sum = [](std::uint64_t bits) {
      const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      return value >= 0 && value < 1e15f ? value : 0;
    };
    return {sum(word), sum(word >> 32)};
  }
  constexpr std::uint64_t pack() const {
    return std::bit_cast<std::uint32_t>(charged_ns) | std::uint64_t{std::bit_cast<std::uint32_t>(cost_ns)} << 32;
  }
};

}  // namespace vgpu::region
