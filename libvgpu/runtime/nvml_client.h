// Our own use of NVML: opened when first needed, never closed, and seen by nobody.
#pragma once

#include <cstdint>

#include "driver/cuda_api.h"

namespace vgpu::runtime {

struct NvmlProcesses {
  static constexpr unsigned kMost = 512;

  nvmlProcessInfo_v1_t entries[kMost];
  unsigned count = 0;

  const nvmlProcessInfo_v1_t *find(unsigned pid) const;
};

// Who computes on a device of the region. False: no NVML, or one that cannot tell. Opens NVML when first called: to be
// called only when the process has, had, or is about to have a context.
bool list_processes(unsigned dev, NvmlProcesses *processes);

// How busy processes kept a device since an instant of NVML's clock, in microseconds. False as above, or if it knows of
// nothing.
struct NvmlSamples {
  static constexpr unsigned kMost = 512;

  nvmlProcessUtilizationSample_t entries[kMost];
  unsigned count = 0;
};
bool list_utilisation(unsigned dev, unsigned long long since_us, NvmlSamples *samples);

}  // namespace vgpu::runtime
