// Waiting for budget: without a loop, a timer thread or any CPU time.
#pragma once

#include "base/clock.h"
#include "region/layout.h"

namespace vgpu::sm {

inline constexpr std::uint64_t kLongestWaitNs = 100'000'000;  // before one looks again, whatever was promised

// Until this instant of CLOCK_MONOTONIC, or until `generation` is no longer `seen`, somebody wakes the job or a signal was
// handled. Holds nothing, so that a handler may also leave it for good; not a cancellation point, as no call of the
// driver is.
void wait_until(const region::HalfWord &generation, std::uint32_t seen, std::uint64_t until_ns);

// All of the job who wait look again. For ranks too: waking needs no more than reading.
void wake_all(const region::HalfWord &generation);

}  // namespace vgpu::sm
