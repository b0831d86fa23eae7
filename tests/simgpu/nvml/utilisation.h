// How busy processes keep a device. There is no model of time yet: the operator says it.
#pragma once

#include <vector>

#include "nvml/visible.h"

namespace simgpu {

struct Utilisation {
  VisibleProcess process;
  unsigned sm, memory, encoder, decoder;  // percent
};

// From the file `utilisation` in the node's directory: lines of device, host PID, and the four percentages. Only of
// processes that are visible, and not all zero.
std::vector<Utilisation> utilisation_of(Session *session, DeviceState *state);

unsigned long long wall_clock_us();

}  // namespace simgpu
