// Which driver the library passes for; see cuda/level.h.
#pragma once

namespace simgpu {

extern const int kCudaVersion;
extern const char *const kNvmlDriverVersion;

}  // namespace simgpu
