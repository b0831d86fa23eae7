// Decides about a launch, as a traffic meter does about a packet: now, or when. Knows neither the clock nor the driver,
// so that tests can supply both.
//
// Launches are let through in batches. Each batch is paid for in advance by what its launches cost one by one, times the
// job's pace: how much of that the device really takes, as launches that overlap take less. What it took is charged
// afterwards (batch.h).
#pragma once

#include "bucket.h"
#include "costs.h"

namespace vgpu::sm {

// Budget is taken in batches of at least this, which a thread then spends launch by launch without a clock or an atomic
// operation. Smaller: a short launch waits for its own budget. With 20 us, a rank of 20 us kernels at 10 % waits 4300
// instead of 50 times a second in the model, and each time takes a clock, shared words and a system call. (500 us and 1
// ms were used before; 2 ms halved the CPU time of a rank that waits.) Larger: what one thread holds the others cannot
// use, and what a batch took is charged later.
inline constexpr std::uint64_t kCreditBatchNs = 2'000'000;
// How long after a measurement a kernel may be measured again, of each process and device. Shorter: more launches pay for
// two events, some microseconds on the host, and leave the fast path for it. Longer: costs follow a program more slowly.
inline constexpr std::uint64_t kMeasureEveryNs = 5'000'000;

// The job's words of one device.
struct JobDevice {
  region::DeviceUsage &usage;
  region::Word &pace;
  region::CoverageWords &coverage;
};

// This process's part in one device's limiter. All zeroes is its beginning.
struct Meter {
  RankShare rank_share;
  std::atomic<std::uint64_t> measured_ns;  // when a launch was last measured
  // A PaceWord each, of batches in which the device may have been idle and of the others; any thread, by CAS.
  std::atomic<std::uint64_t> gaps, backlogs;
};

// Launches of one thread that are charged together.
struct Batch {
  LaunchKey first;               // its first launch
  std::uint64_t arrived_ns = 0;  // when the call of that returned
  std::uint64_t cost_ns = 0;     // what its launches cost one by one, as far as is known
  std::uint64_t prepaid_ns = 0;
  std::uint64_t launches = 0;
  bool measured = false;     // its only launch is to teach what such a launch costs
  bool guess = false;        // nothing was known of its only launch
  bool interrupted = false;  // the call of the first launch took the host long, so that it is not measured
};

// What a thread has taken of a device's budget and not spent yet, and the batch that it spends it on.
struct LaunchCredit {
  unsigned dev = 0;
  std::uint64_t remaining_ns = 0;  // in costs of launches; 0 while no batch is open
  std::uint64_t launches = 0;      // paid so far
  // Of the slow path.
  std::uint64_t reported = 0;    // launches that the region has been told of
  std::uint64_t unspent_ns = 0;  // of the budget, while no batch is open
  bool open = false;
  Batch batch{};                 // as it was opened
  std::uint64_t budget_ns = 0;   // that it was opened with
  std::uint64_t granted_ns = 0;  // the same in costs
  std::uint64_t launches_before = 0;
  double pace = 1;
};

struct Decision {
  bool go = false;
  std::uint64_t until_ns = 0;  // when to ask again, if not
  LaunchKey launch{};
  std::uint64_t cost_ns = 0;   // of this launch; 0: not known
  std::uint64_t price_ns = 0;  // what it is charged until it is measured
  std::uint64_t taken_ns = 0;  // of the budget, for this launch and those that follow
  double pace = 1;
  bool measure = false;  // learn from it what such a launch costs: it is a batch of its own
};

// For a launch that the credit does not cover: takes budget for it. `percent` is below 100.
Decision decide(const JobDevice &job, Meter &meter, Costs &costs, const LaunchKey &launch, const LaunchCredit &credit,
                std::uint32_t percent, std::uint64_t now_ns);

// After a decision to go. The thread's last batch is closed by then. True: it ends behind this launch.
bool open_batch(LaunchCredit &credit, const Decision &decision);
// Ends the thread's batch, which is open.
Batch close_batch(LaunchCredit &credit);
// The driver refused its only launch.
void cancel_batch(LaunchCredit &credit);

// How far what is charged to a job moves `tat`, and whether other jobs use the device, too.
ChargeRate charge_rate(const region::DeviceUsage &device, std::uint32_t percent, bool *shared);

// Returns what the thread has not spent, because it is about to wait for the device and may not launch soon. Its batch is
// closed by then.
void give_back(region::DeviceUsage &device, LaunchCredit &credit, std::uint32_t percent);

// What a launch does first, and for most launches all there is.
inline bool spend(LaunchCredit &credit, const Cost &cost) {
  const std::uint64_t cost_ns = cost.settled_ns.load(std::memory_order_relaxed);
  if (cost_ns == 0 || credit.remaining_ns < cost_ns) return false;
  credit.remaining_ns -= cost_ns;
  ++credit.launches;
  return true;
}

}  // namespace vgpu::sm
