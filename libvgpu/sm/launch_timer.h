// Measures launches: two events around one, read when the program comes by again. Never waits for the device.
#pragma once

#include "base/wiped.h"
#include "costs.h"
#include "driver/cuda_api.h"
#include "meter.h"
#include "runtime/contexts.h"

namespace vgpu::sm {

// An event pair and the launch it is around.
struct Probe {
  enum State : std::uint8_t { free, open, under_way };

  std::atomic<State> state;
  std::uint32_t context;  // the serial number of the context that the events belong to; 0: there are none yet
  CUevent start, end;
  Cost *cost;
  std::uint64_t charged_ns;
  unsigned dev;
  std::uint64_t held_ns;  // see Taken
  bool alone;
  HostSide host;
  bool first;  // nothing was known of the cost
};

// All that a process measures at a time. All zeroes is its beginning. One thread at a time looks at it; another that
// comes by does without.
struct Probes {
  static constexpr unsigned kMost = 16;

  std::atomic<bool> taken;              // nobody waits for it
  std::atomic<std::uint32_t> busy;      // probes that are not free
  std::atomic<std::uint32_t> learning;  // of these, first measurements
  Probe all[kMost];
};

// Before a launch in the current context; null: not this time. Takes the first event.
Probe *open_probe(Probes &probes, const runtime::Place &place, Cost &cost, const Decision &decision, CUstream stream);
// After it. Takes the second event.
void close_probe(Probes &probes, Probe &probe, region::DeviceUsage &device, bool launched, CUstream stream);

// What has come to its end in the current context. True: see learn().
bool read_probes(Probes &probes, const runtime::Place &place, Costs &costs, region::DeviceUsage &device,
                 std::uint32_t percent);

}  // namespace vgpu::sm
