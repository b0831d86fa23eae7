#include "simgpu/nvml/level.h"

namespace simgpu {

const int kCudaVersion = SIMGPU_DRIVER_VERSION;
const char *const kNvmlDriverVersion = SIMGPU_DRIVER_VERSION >= 13000 ? "580.65.06" : "535.309.01";

}  // namespace simgpu
