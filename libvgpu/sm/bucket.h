// The job's budget of GPU time on one device: a token bucket (GCRA) in one word of the region, and no thread that
// refills it.
//
// The word is `tat`, GCRA's theoretical arrival time: the instant, in nanoseconds of CLOCK_MONOTONIC, at which the next
// launch conforms to the job's share. A launch that costs c moves it on by c/share; a launch that comes earlier waits
// until then. A job that does not use its share saves at most kBurstNs of it. A long kernel is let through as soon as
// it conforms and leaves a debt, a `tat` far in the future, so that long kernels are paid for, too (up to
// region::kLargestDebtNs; what is beyond goes unpaid).
//
// No rank ever owns the bucket: a rank that dies or stops while it waits, or after it was let through, costs the others
// nothing but what it was charged.
#pragma once

#include "region/layout.h"
#include "region/sm_words.h"

namespace vgpu::sm {

// How much of `tat` a job can save while it does not launch. It bridges the pauses of a program that waits for its
// results. Smaller: a pause is lost for good. With 5 ms, programs that work 20 ms and pause 20 ms get as little as 75 %
// of their share in the model (tests/sm); with 1 ms even programs that never pause lose by every late wake-up. Larger:
// a job that was idle or suspended runs that much longer without a limit when it comes back.
inline constexpr std::uint64_t kBurstNs = 50'000'000;
// A rank that had more than its part of the budget leaves it to the other ranks for this long after it conforms; what
// is left then it takes. Time enough for a rank that waits to wake up and launch, and much less than kBurstNs. Absent:
// ranks do not get the same time (in the model four ranks with the same 20 ms kernels differ by up to a fifth).
// Larger, 10 ms: budget stays unused while no other rank wants it, and jobs of several ranks fall below 95 % of their
// share.
inline constexpr std::uint64_t kYieldNs = 2'000'000;

// How far a nanosecond of a launch's cost moves `tat`.
struct ChargeRate {
  std::uint32_t percent = 100;                   // the job's share, 1 to 99
  std::uint64_t ratio = region::TrimWord::kOne;  // NVML's correction of costs, in 1/65536

  std::uint64_t tat_step(std::uint64_t cost_ns) const {
    return static_cast<std::uint64_t>(static_cast<double>(cost_ns) * (100.0 / region::TrimWord::kOne) *
                                      static_cast<double>(ratio) / percent);
  }
};

// A rank's part of the job's budget, which all ranks that launch share equally. In the rank's own memory.
struct RankShare {
  std::atomic<std::uint64_t> own_tat;  // when this rank will have had no more than its part
  std::atomic<std::uint32_t> period;   // in which it last counted itself, see ContendersWord
};

struct BudgetRequest {
  std::uint64_t cost_ns = 0;  // to be charged
  bool known = true;          // false: the cost is a guess, which may not spend what was saved
};

struct BudgetGrant {
  bool granted = false;
  std::uint64_t until_ns = 0;  // when to ask again, if it was not
};

// How many ranks there are to share with, this one among them.
unsigned contenders(region::DeviceUsage &device, RankShare &rank_share, std::uint64_t now_ns);

// Whether there were others lately.
bool has_contenders(const region::DeviceUsage &device);

BudgetGrant take_budget(region::DeviceUsage &device, RankShare &rank_share, const ChargeRate &rate,
                        const BudgetRequest &request, std::uint64_t now_ns);

// Adds to what was charged, or, negative, takes from it.
void correct(region::DeviceUsage &device, const ChargeRate &rate, std::int64_t cost_ns);

}  // namespace vgpu::sm
