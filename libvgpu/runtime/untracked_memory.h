// Memory that no call shows: contexts, modules, and what the driver rounds up.
//
// Before a call that makes some, what the last one took is reserved. Afterwards NVML says what the process really holds;
// what of it no allocation accounts for is hidden memory, and the charge for that is corrected: if it does not fit into
// the limit, the caller undoes the call. A process that NVML does not list yet is measured later, from any allocation.
#pragma once

#include <atomic>

#include "region/region.h"

namespace vgpu::runtime {

class HiddenCharge {
 public:
  // Reserves what a context or module is likely to take. If that is refused, it has been said.
  HiddenCharge(unsigned dev, region::Kind kind);
  // ... or what is known to be wanted.
  HiddenCharge(unsigned dev, region::Kind kind, std::uint64_t expected);
  HiddenCharge(const HiddenCharge &) = delete;
  HiddenCharge &operator=(const HiddenCharge &) = delete;

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

// After a call that gave hidden memory back.
void settle_hidden(unsigned dev, region::Kind kind);
// After a call that may have made some, too cheap itself to be measured.
void note_hidden_growth();
// Data that was charged, is no longer recorded, and may be gone or not: it counts as hidden memory until it is measured.
void hide_data(unsigned dev, std::uint64_t bytes);
// Before somebody is refused: measures what may be gone. False: nothing was given back.
bool settle_before_refusing(unsigned dev);

// Some device's hidden memory is not known yet.
extern std::atomic<bool> hidden_unsettled;
// Measures what is due: soon after a context was made, and once a second.
void settle_late();

[[gnu::tls_model("initial-exec")]] extern thread_local constinit unsigned calls_since_look;
inline constexpr unsigned kCallsPerLook = 8;  // how often an allocation looks at the clock

// On every path that has a moment to spare.
inline void settle_hidden_when_due() {
  const bool due = hidden_unsettled.load(std::memory_order_relaxed) || ++calls_since_look % kCallsPerLook == 0;
  if (__builtin_expect(due, false)) settle_late();
}

}  // namespace vgpu::runtime
