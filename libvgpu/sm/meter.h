// Decides about a launch, as a traffic meter does about a packet: now, or when. Knows neither the clock nor the driver,
// so that tests can supply both.
#pragma once

#include "bucket.h"
#include "costs.h"

namespace vgpu::sm {

// Budget is taken in batches of at least this, which a thread then spends launch by launch without a clock or an atomic
// operation. Smaller: a short launch waits for its own budget. With 20 us, a rank of 20 us kernels at 10 % waits 4300
// instead of 50 times a second in the model, and each time takes a clock, shared words and a system call. (500 us and 1
// ms were used before; 2 ms halved the CPU time of a rank that waits.) Larger: what one thread holds the others cannot
// use, and a batch is launched at once, where others measure. With 10 ms, programs of several ranks fall to 89 % of
// their share, with 50 ms some get 4 points too much and NVML's correction fails.
inline constexpr std::uint64_t kCreditBatchNs = 2'000'000;
// How long after a measurement a settled kernel may be measured again, of each process and device. Shorter: more
// launches pay for two events, some hundreds of nanoseconds on the host, and leave the fast path for it. Longer: costs
// follow a program more slowly. With 100 ms, random mixes of the model get as little as 71 % of their share (92 % with
// this) or 2.8 points too much, with 2 s up to 15.
inline constexpr std::uint64_t kMeasureEveryNs = 5'000'000;

// What a thread has taken of a device's budget and not spent yet.
struct LaunchCredit {
  unsigned dev = 0;
  std::uint64_t remaining_ns = 0;
  std::uint64_t launches = 0;  // paid from it, and not yet reported to the region
};

// This process's part in one device's limiter. All zeroes is its beginning.
struct Meter {
  RankShare rank_share;
  std::atomic<std::uint64_t> measured_ns;  // when a launch was last measured
};

struct Decision {
  bool go = false;
  std::uint64_t until_ns = 0;    // when to ask again, if not
  std::uint64_t charged_ns = 0;  // for this launch
  bool measure = false;          // put two events around it
  bool alone = false;            // see BudgetGrant, as for held_ns
  std::uint64_t held_ns = 0;
};

// For a launch that the credit does not cover: takes budget for it. `percent` is below 100.
Decision decide(region::DeviceUsage &device, Meter &meter, Cost &cost, LaunchCredit &credit, std::uint32_t percent,
                std::uint64_t now_ns);

// A launch was measured. True: so much was given back that waiting threads should ask again at once.
bool learn(region::DeviceUsage &device, Costs &costs, Cost &cost, Measurement measured, std::uint32_t percent);

// The driver refused a launch that was to be measured: it costs nothing. `guessed`: nothing was known of it.
void cancel(region::DeviceUsage &device, Cost &cost, std::uint64_t charged_ns, bool guessed, std::uint32_t percent);

// Returns what the thread has not spent, because it is about to wait for the device and may not launch soon. Spent
// later, it would let launches onto the device while other ranks measure theirs.
void give_back(region::DeviceUsage &device, LaunchCredit &credit, std::uint32_t percent);

// What a launch does first, and for most launches all there is.
inline bool spend(LaunchCredit &credit, unsigned dev, const Cost &cost) {
  const std::uint64_t cost_ns = cost.settled_ns.load(std::memory_order_relaxed);
  if (cost_ns == 0 || credit.dev != dev || credit.remaining_ns < cost_ns) return false;
  credit.remaining_ns -= cost_ns;
  ++credit.launches;
  return true;
}

}  // namespace vgpu::sm
