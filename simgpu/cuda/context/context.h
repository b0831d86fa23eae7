// Contexts, the primary and green ones included: how they are made, made current, set and torn down. Here is what tearing
// one down needs from the parts that own things in it.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

std::map<uintptr_t, HostRange>::iterator release_host_range(Driver *driver,
                                                            std::map<uintptr_t, HostRange>::iterator range);
CUresult release_primary(Driver *driver, Device *device, bool reset);

}  // namespace simgpu
