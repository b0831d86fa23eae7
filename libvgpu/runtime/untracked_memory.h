// Untracked memory, which no call shows: contexts, modules, and what the driver rounds up.
//
// Before a call that makes some, what the last one took is reserved. Afterwards NVML says what the process really holds;
// what of it no allocation accounts for is untracked, and the charge for that is corrected: if it does not fit into
// the limit, the caller undoes the call. A process that NVML does not list yet is measured later, from any allocation.
#pragma once

#include <atomic>

#include "region/region.h"

namespace vgpu::runtime {

class UntrackedCharge {
 public:
  // Reserves what a context or module is likely to take. If that is refused, it has been logged.
  UntrackedCharge(unsigned dev, region::Kind kind);
  // ... or what is known to be wanted.
  UntrackedCharge(unsigned dev, region::Kind kind, std::uint64_t expected);
  UntrackedCharge(const UntrackedCharge &) = delete;
  UntrackedCharge &operator=(const UntrackedCharge &) = delete;

  bool granted() const { return granted_; }
  // The call failed, or was undone.
  void cancel();
  // The call succeeded. False: what it took does not fit; undo it, then cancel().
  bool settle();

 private:
  unsigned dev_;
  region::Kind kind_;
  bool granted_;
  std::uint64_t reserved_;
};

// After a call that gave untracked memory back.
void settle_untracked(unsigned dev, region::Kind kind);
// After a call that may have made some, too cheap itself to be measured.
void note_untracked_growth();
// Data that was charged, is no longer recorded, and may be gone or not: it counts as untracked memory until it is measured.
void untrack_data(unsigned dev, std::uint64_t bytes);
// Before somebody is refused: measures what may be gone. False: nothing was given back.
bool settle_before_refusing(unsigned dev);

// Some device's untracked memory is not known yet.
extern std::atomic<bool> untracked_unsettled;
// Measures what is due: soon after a context was made, and once a second.
void settle_due();

[[gnu::tls_model("initial-exec")]] extern thread_local constinit unsigned calls_since_clock_read;
inline constexpr unsigned kCallsPerClockRead = 8;  // how often an allocation looks at the clock

// On every path that has a moment to spare.
inline void settle_untracked_when_due() {
  const bool due =
      untracked_unsettled.load(std::memory_order_relaxed) || ++calls_since_clock_read % kCallsPerClockRead == 0;
  if (__builtin_expect(due, false)) settle_due();
}

}  // namespace vgpu::runtime
