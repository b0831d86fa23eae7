// Code that comes to the device late: drivers load a function when it is first launched, within that call, which can take
// 20 ms. That is the host's time. So it is done before the launch is paid for; and where it cannot be, the first launch
// of a function that kept the host for long is not measured.
#pragma once

#include "driver/cuda_api.h"

namespace vgpu::sm {

// Handles that a program got. Only such can be loaded: launches take functions and kernels alike, cuFuncLoad does not.
void note_function(CUfunction function);
void note_kernel(CUkernel kernel);
// After a module, a library or a context went: any handle may become another's.
void forget_functions();

// Before a launch of which nothing is known: loads its code, unless it was launched before. Errors are left to the launch.
void load_before_first_launch(const void *launched);

}  // namespace vgpu::sm
