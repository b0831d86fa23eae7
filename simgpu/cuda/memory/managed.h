// Managed memory: host pages at the device address, with device memory taken only while they are resident there.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

CUresult allocate_managed(Driver *driver, Context *context, size_t bytes, unsigned flags, Area **area);

}  // namespace simgpu
