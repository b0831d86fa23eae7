// Leader election by lease: which rank asks NVML for the job, one per device.
//
// There is no thread for it: a thread that comes for budget looks at the lease, whether it will have to wait or not. Its
// holder renews it with every tick. If it stays away for three, because it died, stopped or has nothing to launch, the next
// rank that comes takes the lease over under a new epoch. The leader publishes only while the word bears its epoch: a rank that was
// stopped half-way and continues finds another's epoch there, and changes nothing.
#pragma once

#include "region/layout.h"
#include "region/sm_words.h"

namespace vgpu::sm {

// How often the leader renews its lease and asks NVML. Shorter than NVML's windows, which end every 167 ms, because
// NVML tells only of the last one, and what it left out is not compared. Longer than a window, 180 ms: many are left out, and
// costs that are off stay so for longer. Shorter: more calls of NVML for the same samples.
inline constexpr std::uint64_t kTickMs = 120;
// After how many missed ticks another rank takes over. With one, the lease would go to whichever rank comes first after
// each tick, and the feedback of each would start anew: where two jobs share the model's device nothing is then ever
// corrected. More: a leader that died leaves the ratio as it was for longer; a test wants it replaced within 0.9 s.
inline constexpr std::uint64_t kLeaseTicks = 3;

// What this process knows of its own election; all zeroes is not elected.
struct Candidate {
  std::uint64_t epoch = 0;
};

enum class LeaseClaim : std::uint8_t {
  refused,   // another rank's, or not due yet
  renewed,   // this process is still the leader
  acquired,  // it is the leader from now on
};

// Unless refused, this process asks NVML now, and will be refused until the next tick.
LeaseClaim claim_lease(region::DeviceUsage &device, Candidate &candidate, unsigned slot, std::uint64_t now_ms);

// False: another rank is elected.
bool publish(region::DeviceUsage &device, const Candidate &candidate, std::uint64_t ratio, bool shared);

}  // namespace vgpu::sm
