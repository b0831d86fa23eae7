// Which rank looks at NVML for the job: one per device, for as long as it keeps coming back.
//
// There is no thread for it: whoever waits for budget has time, and looks at the lease. Its holder renews it with every
// tick; if it stayed away for three, because it died, stopped or has nothing to launch, the next who waits takes it over
// under a new epoch. What it writes, it writes while the word bears its epoch: one that was stopped half-way and wakes
// finds another's there, and changes nothing.
#pragma once

#include "region/layout.h"
#include "region/sm_words.h"

namespace vgpu::sm {

inline constexpr std::uint64_t kTickMs = 120;
inline constexpr std::uint64_t kLeaseTicks = 3;

// This process's candidacy; all zeroes is not elected.
struct Candidate {
  std::uint64_t epoch = 0;
};

enum class Turn : std::uint8_t {
  no,
  yes,
  first,  // yes, and somebody else had it before
};

// Is it this process's turn to look? If so, not again before the next tick.
Turn claim_turn(region::DeviceUsage &device, Candidate &candidate, unsigned slot, std::uint64_t now_ms);

// False: another rank is elected.
bool publish(region::DeviceUsage &device, const Candidate &candidate, std::uint64_t ratio, bool shared);

}  // namespace vgpu::sm
