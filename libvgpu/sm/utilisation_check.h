// The elected rank asks NVML for the job's utilisation of a device, and corrects what launches are charged.
#pragma once

#include "costs.h"
#include "election.h"
#include "feedback.h"

namespace vgpu::sm {

// This process's candidacy for one device. All zeroes is its beginning.
struct UtilisationCheck {
  std::atomic<bool> busy;  // a thread is checking, and alone reads and writes the rest; others do not wait for it
  std::uint64_t not_before_ns;
  unsigned long long seen_us;  // the newest sample so far, on NVML's clock
  region::FeedbackState told;  // whether there is feedback, as it was last written
  Candidate candidate;
  Feedback feedback;
};

// A thread that asks for budget notes what the job was charged so far, right before it is charged itself.
void note_charged(UtilisationCheck &check, const region::DeviceUsage &device, std::uint64_t now_ns);
// And right after, whether it has to wait or not. Mostly does nothing but note that again. Holds no lock while NVML answers.
void check_utilisation(UtilisationCheck &check, unsigned dev, region::DeviceUsage &device, const Costs &costs,
                       std::uint64_t now_ns);

}  // namespace vgpu::sm
