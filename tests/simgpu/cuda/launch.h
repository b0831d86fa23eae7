// Kernel launches. Kernels take no time yet; count_launch is where a model of time will begin.
#pragma once

#include "cuda/core.h"

namespace simgpu {

inline void count_launch(Context *context) { context->device->books->launches.fetch_add(1, std::memory_order_relaxed); }

}  // namespace simgpu
