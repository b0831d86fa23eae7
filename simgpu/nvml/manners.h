// How NVML behaves besides its figures: what the node's description says, or, where that gives a seed, whatever comes up.
#pragma once

#include "simgpu/nvml/session.h"

namespace simgpu {

// As they are for the call that this thread is in.
const NvmlManners &manners();
// Whether NVML shows this process in the present call. Only random manners leave one out.
bool shows_process(unsigned slot);

}  // namespace simgpu
