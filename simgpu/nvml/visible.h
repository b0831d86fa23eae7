// Who is on a device, as NVML sees it: processes with a context or memory there, once they are visible.
#pragma once

#include <vector>

#include "simgpu/nvml/session.h"

namespace simgpu {

struct VisibleProcess {
  unsigned pid;       // what it is called: see visible.cc
  unsigned host_pid;  // what the node's operator calls it
  unsigned long long bytes;
  uint64_t connected_ns;  // CLOCK_MONOTONIC
  unsigned slot;
};

// `in_list`: for one of NVML's lists of processes, which may call them otherwise than other calls.
std::vector<VisibleProcess> visible_processes(Session *session, DeviceState *state, bool in_list = false);

// How a call that fills an array with `found` things starts: false when it must end with `result`.
bool has_room(unsigned found, unsigned *count, const void *out, nvmlReturn_t *result);

}  // namespace simgpu
