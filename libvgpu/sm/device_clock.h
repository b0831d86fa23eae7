// Puts the times of events, which are the device's, on the host's clock, so that what several processes launched can be
// compared.
//
// The host's time of an event is the instant at which a call that records into an idle stream would have to return for
// the device to come to it then: how long work takes to reach the device is thereby part of the offset between the
// clocks, and the arrival of a launch is the return of its call. An event in an idle stream shows the offset; behind
// other work it comes later. So the least difference counts, of a time so short that the clocks cannot drift far.
#pragma once

#include <cstdint>

namespace vgpu::sm {

// When the host recorded an event: before the call and after it.
struct Recorded {
  std::uint64_t called_ns = 0;
  std::uint64_t returned_ns = 0;
};

// One thread at a time. All zeroes is its beginning.
class DeviceClock {
 public:
  // `idle`: nothing that this process had launched was still under way when the event was recorded.
  void see(std::uint64_t device_ns, const Recorded &host, bool idle);
  bool known() const { return known_; }
  std::uint64_t host_time(std::uint64_t device_ns) const {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(device_ns) - offset_);
  }

 private:
  bool known_;
  bool seen_in_this_window_, seen_before_;
  std::int64_t offset_;  // device time less host time
  std::int64_t in_this_window_, before_;
  std::uint64_t window_ns_;  // when this one began
};

}  // namespace vgpu::sm
