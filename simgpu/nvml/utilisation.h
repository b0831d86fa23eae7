// How busy processes keep a device: what the device's schedule says, in windows of a sixth of a second that have ended; or,
// where the operator has written the file `utilisation` in the node's directory, what that says of now.
#pragma once

#include <vector>

#include "simgpu/nvml/visible.h"

namespace simgpu {

struct Utilisation {
  VisibleProcess process;
  unsigned sm, memory, encoder, decoder;  // percent
  unsigned long long time_us;             // when it was measured
};

// Of processes that are visible, and not all zero; each process's last one, if it was measured after `last_seen_us`.
std::vector<Utilisation> utilisation_of(Session *session, DeviceState *state, unsigned long long last_seen_us = 0);

struct Sample {
  unsigned percent;
  unsigned long long time_us;
};

// Of the device as a whole, all that were measured after `last_seen_us`, the oldest first.
std::vector<Sample> samples_of(Session *session, DeviceState *state, unsigned Utilisation::*part,
                               unsigned long long last_seen_us);
// The last of them, which is known without the lag that samples have; 0 if there is none yet.
unsigned percent_of(Session *session, DeviceState *state, unsigned Utilisation::*part);

unsigned long long wall_clock_us();
// Timestamps are of the wall clock, or of the devices' own when that is virtual.
unsigned long long clock_us(Session *session);

}  // namespace simgpu
