// Which device of the region a CUDA ordinal or an NVML handle is: by UUID, else by PCI address, never by its number.
#pragma once

#include "driver/cuda_api.h"

namespace vgpu::runtime {

inline constexpr int kNotInJob = -1;

// The device's number in the region; kNotInJob when the job was not given it. The driver must be initialised.
int region_device(CUdevice ordinal);
int region_device(nvmlDevice_t handle);

}  // namespace vgpu::runtime
