// What launches cost on hardware beyond the kernel itself: the time of the call, code that is loaded when it is first
// needed, and local memory for as many threads as the device can have resident. The description says how much of it.
#pragma once

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/module/module.h"

namespace simgpu {

// Loads the function unless it has been. Expects the driver's lock; the time it takes is for the caller to spend.
CUresult load_function(Driver *driver, Function *function, bool *fresh);
// All that must be there before the function can run.
CUresult prepare_function(Driver *driver, Function *function);
// Keeps the caller busy, as a driver does that talks to its device. A virtual clock does not know such times.
void spend(Device *device, uint64_t ns);
// Gives back all but the blocks for `bytes`.
void shrink_blocks(Device *device, BlockList *blocks, uint64_t bytes);

// For every launch.
inline CUresult meet_launch_costs(Driver *driver, Function *function) {
  Device *device = function->context->device;
  if (__builtin_expect(!device->launches_cost, 1)) return CUDA_SUCCESS;
  if (CUresult result = prepare_function(driver, function)) return result;
  spend(device, device->facts().launch_ns);
  return CUDA_SUCCESS;
}

}  // namespace simgpu
