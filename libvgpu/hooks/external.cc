// Memory of other interfaces. What this process took there is in its figure and measured soon; what another process of the
// job made is charged to that one.
#include "runtime/charge.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

extern "C" {

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description) {
  return remeasure_after(REAL(cuImportExternalMemory)(memory, description));
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  return remeasure_after(REAL(cuDestroyExternalMemory)(memory));
}

}  // extern "C"
