#include "simgpu/cuda/level.h"

namespace simgpu {

const int kDriverVersion = SIMGPU_DRIVER_VERSION;

}  // namespace simgpu
