// A thread's wait for budget: no loop that spins, no timer thread, no CPU time.
#pragma once

#include "base/clock.h"
#include "region/layout.h"

namespace vgpu::sm {

// A thread asks again after this long, however late its launch conforms. Budget that comes a little
// early (learn() in meter.h wakes threads only for much) wakes no thread, and the words of the region may hold
// anything: this bounds what either can cost. Longer: a wrong word, or a debt that was corrected, keeps a thread that much longer, and
// the lease of the election, three ticks of 120 ms, could run out while its holder waits. Shorter: threads with a long
// debt wake up for nothing.
inline constexpr std::uint64_t kLongestWaitNs = 100'000'000;

// Returns at this instant of CLOCK_MONOTONIC, or earlier: when `generation` is no longer `seen`, when a thread of the
// job calls wake_all(), or when a signal was handled. Holds nothing, so that a handler may also leave it by longjmp;
// not a cancellation point, as no call of the driver is one.
void wait_until(const region::HalfWord &generation, std::uint32_t seen, std::uint64_t until_ns);

// All waiting threads of the job ask again. Any rank may call it: waking takes only the right to read the word.
void wake_all(const region::HalfWord &generation);

}  // namespace vgpu::sm
