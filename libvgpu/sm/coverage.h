// What of the last 0.4 s the job had work on the device, in the region: time that several ranks, threads or streams used
// at once is charged once.
//
// A ring of words. Each holds 48 quanta of 16 us, and the epoch that they belong to. All zeroes is its beginning.
#pragma once

#include "region/layout.h"

namespace vgpu::sm {

// A quantum belongs to who covers more than half of it. Larger: short kernels of two ranks that follow each other pay
// for each other's time. Smaller: less time is remembered, and more words are written.
inline constexpr std::uint64_t kQuantumNs = 16'000;

// Covers the time from `from_ns` to `to_ns` of CLOCK_MONOTONIC. Returns how much of it was not covered before; what is
// longer ago than the ring remembers counts as not covered.
std::uint64_t cover(region::CoverageWords &coverage, std::uint64_t from_ns, std::uint64_t to_ns);

}  // namespace vgpu::sm
