#include "nvml_call.h"

namespace vgpu::driver {

[[gnu::tls_model("initial-exec")]] thread_local constinit unsigned nvml_depth = 0;

}  // namespace vgpu::driver
