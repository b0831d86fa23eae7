// cuGetProcAddress: the driver answers, and where its answer is a function with a hook, the program gets the hook.
#include "driver/flags.h"
#include "driver/resolve.h"

using namespace vgpu;
using namespace vgpu::driver;

extern "C" {

CUresult cuGetProcAddress_v2(const char *name, void **pointer, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  const CUresult result = REAL(cuGetProcAddress_v2)(name, pointer, version, flags, status);
  if (result == CUDA_SUCCESS && *pointer != nullptr && region_is_expected()) {
    *pointer = hook_for(*pointer, name, version, flags);
  }
  return result;
}

CUresult cuGetProcAddress(const char *name, void **pointer, int version, cuuint64_t flags) {
  const CUresult result = REAL(cuGetProcAddress)(name, pointer, version, flags);
  if (result == CUDA_SUCCESS && *pointer != nullptr && region_is_expected()) {
    *pointer = hook_for(*pointer, name, version, flags);
  }
  return result;
}

}  // extern "C"
