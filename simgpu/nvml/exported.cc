#include "simgpu/nvml/exported.h"

namespace simgpu::exported {

// Not const data of the archive, where these names are those of the functions behind the gates.
#define SIMGPU_NVML_ROW(name) decltype(&::name) const name = ::name
SIMGPU_NVML_EXPORTED(SIMGPU_NVML_ROW);
#undef SIMGPU_NVML_ROW

}  // namespace simgpu::exported
