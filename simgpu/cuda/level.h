// Which driver the library passes for. Linked twice: once as a driver of CUDA 12.2 (the 535 series), once as one of 13.0.
#pragma once

namespace simgpu {

extern const int kDriverVersion;

}  // namespace simgpu
