// Code that comes to the device late: drivers load a function when it is first launched, within that call, which can take
// 20 ms. That is the host's time. So it is done before the launch is paid for; and where it cannot be, the first launch
// of a function that kept the host for long is not measured.
#pragma once

#include <cstdint>

#include "driver/cuda_api.h"

namespace vgpu::sm {

// Handles that a program got. Only such can be loaded: launches take functions and kernels alike, cuFuncLoad does not.
void note_function(CUfunction function);
void note_kernel(CUkernel kernel);
// After a module, a library or a context went: any handle may become another's.
void forget_functions();

// Before a launch of which nothing is known: loads its code. Errors are left to the launch. False: it was launched before.
bool load_before_first_launch(const void *launched);

// A call that took longer than this did more than to launch: microseconds are the rule, and loading takes from some
// hundred of them. Smaller, and interruptions of the host count; larger, and short loads are billed as the device's time.
inline constexpr std::uint64_t kLongCallNs = 1'000'000;

}  // namespace vgpu::sm
