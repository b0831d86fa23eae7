// The job's budget of GPU time on one device: one word, `tat`, and no thread that refills it.
//
// `tat` is the instant at which the next launch conforms. A launch that costs c moves it by c/share; who comes before it
// waits until then. A job that does not use its share keeps at most kBurstNs of it. A long kernel is let through when its
// turn comes and leaves a debt behind it, so that no kernel is too long for any share.
//
// Nothing is ever held: a rank that dies or stops while it waits, or after it was let through, costs the others nothing
// but what it was charged.
#pragma once

#include "region/layout.h"
#include "region/sm_words.h"

namespace vgpu::sm {

inline constexpr std::uint64_t kBurstNs = 50'000'000;
// A rank that had more than its part of the budget leaves the next turn to the others for as long as this; whoever is
// left then takes it. Much less than the burst, so that nothing is lost by it.
inline constexpr std::uint64_t kPatienceNs = 2'000'000;

// What a nanosecond of GPU time moves `tat` by.
struct Price {
  std::uint32_t percent = 100;  // 1 to 99
  std::uint64_t ratio = 1 << 16;

  // What it probably takes of the device.
  std::uint64_t trimmed(std::uint64_t cost_ns) const {
    return static_cast<std::uint64_t>(static_cast<double>(cost_ns) / 65536 * static_cast<double>(ratio));
  }
  std::uint64_t of(std::uint64_t cost_ns) const {
    return static_cast<std::uint64_t>(static_cast<double>(cost_ns) * (100.0 / 65536) * static_cast<double>(ratio) /
                                      percent);
  }
};

// A rank's own place in the bucket, among those that share it.
struct Standing {
  std::atomic<std::uint64_t> own_tat;  // when this rank has had no more than its part
  std::atomic<std::uint32_t> period;   // in which it last counted itself
};

struct Take {
  std::uint64_t cost_ns = 0;   // to be charged
  std::uint64_t first_ns = 0;  // the launch at hand
  std::uint64_t work_ns = 0;   // that, and all that may follow it at once
  bool known = true;           // false: the cost is a guess, which may not spend what was saved
  // The launch at hand will be measured. What the job has saved could let others' onto the device at the same time; it
  // is held until then.
  bool measured = false;
};

struct Taken {
  bool granted = false;
  std::uint64_t until_ns = 0;  // when to ask again, if it was not
  // No other launch of the job is on the device, nor will one be before this one is done, if costs are what they seem.
  bool alone = false;
  std::uint64_t held_ns = 0;  // of `tat`, to be given back when it is done: see Take::measured
};

// How many ranks there are to share with, this one among them.
unsigned contenders(region::DeviceUsage &device, Standing &standing, std::uint64_t now_ns);

Taken take(region::DeviceUsage &device, Standing &standing, const Price &price, const Take &what, std::uint64_t now_ns);

void let_go(region::DeviceUsage &device, std::uint64_t held_ns);

// What was charged turned out to be wrong by this much.
void correct(region::DeviceUsage &device, const Price &price, std::int64_t cost_ns);

}  // namespace vgpu::sm
