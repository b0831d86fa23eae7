// A client of the CUDA runtime, which finds the driver's functions by cuGetProcAddress alone.
#include <cuda_runtime_api.h>

#include "steps.h"

namespace {

// The runtime's calls in the shape of the driver's.
CUresult init(unsigned) { return static_cast<CUresult>(cudaSetDevice(0)); }
CUresult create(CUcontext *, unsigned, int) { return CUDA_SUCCESS; }
CUresult alloc(CUdeviceptr *pointer, size_t bytes) {
  void *memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, bytes);
  if (result == cudaSuccess) *pointer = reinterpret_cast<CUdeviceptr>(memory);
  return static_cast<CUresult>(result);
}
CUresult release(CUdeviceptr pointer) { return static_cast<CUresult>(cudaFree(reinterpret_cast<void *>(pointer))); }
CUresult info(size_t *free, size_t *total) { return static_cast<CUresult>(cudaMemGetInfo(free, total)); }

}  // namespace

int main() { return run_steps({init, create, alloc, release, info}); }
