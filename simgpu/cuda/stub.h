// What entry points outside the simulator do: log their name and return CUDA_ERROR_NOT_SUPPORTED. Without cuda.h, because
// a stub has no use for its prototype.
#pragma once

namespace simgpu {

int not_supported(const char *name);

}  // namespace simgpu
