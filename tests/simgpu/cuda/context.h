// What tearing a context down needs from the parts that own things in it.
#pragma once

#include "cuda/core.h"

namespace simgpu {

std::map<uintptr_t, HostRange>::iterator release_host_range(Driver *driver,
                                                            std::map<uintptr_t, HostRange>::iterator range);
CUresult release_primary(Driver *driver, Device *device, bool reset);

}  // namespace simgpu
