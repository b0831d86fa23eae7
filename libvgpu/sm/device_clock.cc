#include "device_clock.h"

#include <algorithm>

namespace vgpu::sm {

namespace {

// The least of the last one to two windows counts. Longer: two clocks that differ by 50 ppm drift apart by 50 us in a
// second, and every batch is charged that. Shorter: fewer events are of an idle stream, and the least of them is late.
constexpr std::uint64_t kWindowNs = 500'000'000;
// A call that took longer was interrupted, perhaps between the device and its return, and shows a difference that is
// too small. Larger: every interruption makes the job pay for its length until the window is over. Smaller than the
// call itself, 2.5 us, nothing is ever learned.
constexpr std::uint64_t kInterruptedNs = 50'000;

}  // namespace

void DeviceClock::see(std::uint64_t device_ns, const Recorded &host, bool idle) {
  const std::int64_t difference = static_cast<std::int64_t>(device_ns) - static_cast<std::int64_t>(host.returned_ns);
  if (!known_) {
    known_ = true;
    offset_ = difference;
    window_ns_ = host.returned_ns;
  }
  if (host.returned_ns - host.called_ns > kInterruptedNs) return;
  // Behind other work an event can only show that the offset was too large.
  if (!idle) {
    offset_ = std::min(offset_, difference);
    if (seen_in_this_window_) in_this_window_ = std::min(in_this_window_, difference);
    return;
  }
  if (host.returned_ns - window_ns_ > kWindowNs) {
    seen_before_ = seen_in_this_window_;
    before_ = in_this_window_;
    seen_in_this_window_ = false;
    window_ns_ = host.returned_ns;
  }
  in_this_window_ = seen_in_this_window_ ? std::min(in_this_window_, difference) : difference;
  seen_in_this_window_ = true;
  offset_ = seen_before_ ? std::min(before_, in_this_window_) : in_this_window_;
}

}  // namespace vgpu::sm
