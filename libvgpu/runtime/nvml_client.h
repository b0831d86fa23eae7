// Our own use of NVML: opened when first needed, never closed, and seen by nobody.
#pragma once

#include <cstdint>

#include "hooks/cuda_api.h"

namespace vgpu {

struct NvmlProcesses {
  static constexpr unsigned kMost = 512;

  nvmlProcessInfo_v1_t entries[kMost];
  unsigned count = 0;

  const nvmlProcessInfo_v1_t *find(unsigned pid) const;
};

// Who computes on a device of the region. False: no NVML, or one that cannot tell. Opens NVML when first called: to be
// called only when the process has, had, or is about to have a context.
bool list_processes(unsigned dev, NvmlProcesses *processes);

}  // namespace vgpu
