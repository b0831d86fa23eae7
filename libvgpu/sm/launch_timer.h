// Measures launches: two events around one, read the next time the program launches or synchronises. Never waits for
// the device.
#pragma once

#include "base/wiped.h"
#include "costs.h"
#include "driver/cuda_api.h"
#include "meter.h"
#include "runtime/contexts.h"

namespace vgpu::sm {

// A pair of events and the launch between them.
struct LaunchTimer {
  enum State : std::uint8_t {
    free,
    started,  // the first event is recorded
    pending,  // both are; the device may not have come to the second
  };

  std::atomic<State> state;
  std::uint32_t context;  // the serial number of the context that the events belong to; 0: there are none yet
  CUevent start, end;
  Cost *cost;
  std::uint64_t charged_ns;
  unsigned dev;
  std::uint64_t held_ns;  // see BudgetGrant, as for alone
  bool alone;
  HostTimeline host;
  bool first;  // nothing was known of the cost when it started
};

// All that a process measures at a time. All zeroes is its beginning. One thread at a time uses it; another that finds
// it locked does without a measurement.
struct LaunchTimers {
  // How many launches are measured at a time, at most. Each takes two events of the driver, and read_timers() looks at
  // all of them. Fewer: kernels that are new at the same time wait for each other's timers, and pay the guess until
  // then. With none nothing is ever measured. More: only time that read_timers() takes.
  static constexpr unsigned kMost = 16;

  std::atomic<bool> locked;             // tried, never waited for
  std::atomic<std::uint32_t> busy;      // timers that are not free
  std::atomic<std::uint32_t> learning;  // of these, first measurements
  LaunchTimer all[kMost];
};

// Before a launch in the current context: records the first event. Null: this launch is not measured.
LaunchTimer *start_timer(LaunchTimers &timers, const runtime::Place &place, Cost &cost, const Decision &decision,
                         CUstream stream);
// After it: whether the call kept the host for so long that the device ran out of work within it.
bool waited_for_host(const LaunchTimer &timer);
// And records the second event.
void stop_timer(LaunchTimers &timers, LaunchTimer &timer, region::DeviceUsage &device, bool launched, CUstream stream);

// Learns from the timers of the current context that the device is done with. True: see learn().
bool read_timers(LaunchTimers &timers, const runtime::Place &place, Costs &costs, region::DeviceUsage &device,
                 std::uint32_t percent);

}  // namespace vgpu::sm
