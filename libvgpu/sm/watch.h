// The elected rank's look at NVML.
#pragma once

#include "costs.h"
#include "election.h"
#include "feedback.h"

namespace vgpu::sm {

// This process's candidacy for one device. All zeroes is its beginning.
struct Watch {
  std::atomic<bool> busy;  // a thread is in here; others do not wait for it
  std::uint64_t not_before_ns;
  unsigned long long seen_us;  // on NVML's clock
  std::uint32_t revisions;     // of the costs, when it last looked
  Candidate candidate;
  Feedback feedback;
};

// Called by whoever waits for budget. Mostly does nothing. Holds no lock while NVML answers.
void watch(Watch &watch, unsigned dev, region::DeviceUsage &device, const Costs &costs, std::uint64_t now_ns);

}  // namespace vgpu::sm
