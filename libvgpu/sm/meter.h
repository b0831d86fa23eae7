// Decides about a launch: now, or when. Knows neither the clock nor the driver, so that tests can make up both.
#pragma once

#include "bucket.h"
#include "costs.h"

namespace vgpu::sm {

// Budget is taken in pieces of at least this, and a thread spends it launch by launch: what is short costs little.
inline constexpr std::uint64_t kPieceNs = 2'000'000;
// How often a kernel that is known is measured again, at most: two events are some hundreds of nanoseconds.
inline constexpr std::uint64_t kMeasureEveryNs = 5'000'000;

// What a thread took of a device's budget and has not spent.
struct Purse {
  unsigned dev = 0;
  std::uint64_t credit_ns = 0;
  std::uint64_t launches = 0;  // not yet reported
};

// This process's part in one device's limiter. All zeroes is its beginning.
struct Meter {
  Standing standing;
  std::atomic<std::uint64_t> measured_ns;  // when a launch was last measured
};

struct Decision {
  bool go = false;
  std::uint64_t until_ns = 0;    // when to ask again, if not
  std::uint64_t charged_ns = 0;  // for this launch
  bool measure = false;          // put two events around it
  bool alone = false;            // see Taken
  std::uint64_t held_ns = 0;
};

// The launch that the purse could not pay for: takes from the budget. `percent` is below 100.
Decision decide(region::DeviceUsage &device, Meter &meter, Cost &cost, Purse &purse, std::uint32_t percent,
                std::uint64_t now_ns);

// A launch was measured. True: much was given back, and others may be waiting for less than they think.
bool learn(region::DeviceUsage &device, Costs &costs, Cost &cost, Measurement measured, std::uint32_t percent);

// The thread is about to wait for the device, and may do something else then: what it did not spend goes back. Spent
// later, it would come into the way of what others measure.
void give_back(region::DeviceUsage &device, Purse &purse, std::uint32_t percent);

// What a launch does first, and mostly all.
inline bool pay(Purse &purse, unsigned dev, const Cost &cost) {
  const std::uint64_t price = cost.settled_ns.load(std::memory_order_relaxed);
  if (price == 0 || purse.dev != dev || purse.credit_ns < price) return false;
  purse.credit_ns -= price;
  ++purse.launches;
  return true;
}

}  // namespace vgpu::sm
