// What NVML calls outside the simulator do. Without nvml.h, because a stub has no use for its prototype.
#pragma once

namespace simgpu {

int nvml_not_supported(const char *name);

}  // namespace simgpu
