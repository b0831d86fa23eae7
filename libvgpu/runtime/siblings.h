// The job's other ranks, as NVML shows them: what one was charged for its contexts by a guess is corrected by whoever looks,
// because a rank that computes, waits or sleeps does not look itself.
#pragma once

#include <cstdint>

namespace vgpu::runtime {

// Corrects those that have done nothing since an earlier call. Where NVML shows the job beyond its limit by those that were
// not seen earlier, it looks at them again, after 200 ms, and so not too often: launches take memory that nobody announces.
void look_at_siblings(unsigned dev);
// Before somebody is refused while others may be charged for more than they hold: waits for NVML to show them, 500 ms at
// most, and not again for a while.
bool wait_for_siblings(unsigned dev);

// What NVML shows of them beyond what they are charged for: memory that another rank made and freed, and they hold, until
// they look themselves. While it does not show one that has a context, that may be anything, and so is the answer.
std::uint64_t unbooked_by_siblings(unsigned dev);

}  // namespace vgpu::runtime
