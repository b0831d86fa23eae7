// A small CUDA runtime for programs compiled by nvcc with -cudart none or shared. It reaches the driver exactly as NVIDIA's
// does: dlopen of libcuda.so.1, one dlsym for cuGetProcAddress_v2, and cuGetProcAddress for everything else, each function
// at the version it was introduced with. It is our own; of the real one it has only the interface.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

namespace simrt {

// Every driver function the runtime uses, with the version it asks for.
// clang-format off
#define SIMRT_FUNCTIONS(X)                                                                                             \
  X(cuInit, 2000)                                                                                                      \
  X(cuDriverGetVersion, 2020)                                                                                          \
  X(cuDeviceGetCount, 2000) X(cuDeviceGet, 2000) X(cuDeviceGetName, 2000) X(cuDeviceTotalMem, 3020)                    \
      X(cuDeviceGetAttribute, 2000) X(cuDeviceGetUuid, 11040) X(cuDeviceGetPCIBusId, 4010)                             \
          X(cuDevicePrimaryCtxRetain, 7000) X(cuDevicePrimaryCtxReset, 11000) X(cuCtxSetCurrent, 4000)                 \
              X(cuCtxGetCurrent, 4000) X(cuCtxSynchronize, 2000) X(cuGetErrorName, 6000) X(cuGetErrorString, 6000)     \
                  X(cuMemGetInfo, 3020) X(cuMemAlloc, 3020) X(cuMemAllocPitch, 3020) X(cuMemFree, 3020) X(             \
                      cuMemHostAlloc, 2020) X(cuMemFreeHost, 2000) X(cuMemAllocManaged, 6000) X(cuMemcpy, 4000)        \
                      X(cuMemcpyAsync, 4000) X(cuMemsetD8, 3020) X(cuMemsetD8Async, 3020) X(cuMemPrefetchAsync, 12020) \
                          X(cuMemAllocAsync, 11020) X(cuMemFreeAsync, 11020) X(cuDeviceGetDefaultMemPool, 11020) X(    \
                              cuMemPoolGetAttribute, 11020) X(cuMemPoolSetAttribute, 11020) X(cuMemPoolTrimTo, 11020)  \
                              X(cuStreamCreate, 2000) X(cuStreamDestroy, 4000) X(cuStreamSynchronize, 2000)            \
                                  X(cuStreamQuery, 2000) X(cuStreamWaitEvent, 3020) X(cuLaunchHostFunc, 10000)         \
                                      X(cuEventCreate, 2000) X(cuEventDestroy, 4000) X(cuEventRecord, 2000) X(         \
                                          cuEventQuery, 2000) X(cuEventSynchronize, 2000) X(cuEventElapsedTime, 2000)  \
                                          X(cuStreamBeginCapture, 10010) X(cuStreamEndCapture, 10000)                  \
                                              X(cuGraphInstantiateWithFlags, 11040) X(cuGraphLaunch, 10000)            \
                                                  X(cuGraphExecDestroy, 10000) X(cuGraphDestroy, 10000)                \
                                                      X(cuGraphGetNodes, 10000) X(cuDeviceGraphMemTrim, 11040)         \
                                                          X(cuIpcGetMemHandle, 4010) X(cuIpcOpenMemHandle, 11000) X(   \
                                                              cuIpcCloseMemHandle, 4010) X(cuLibraryLoadData, 12000)   \
                                                              X(cuLibraryUnload, 12000) X(cuLibraryGetKernel, 12000)   \
                                                                  X(cuLibraryGetGlobal, 12000) X(cuLaunchKernel, 4000)
// clang-format on

// The signatures of the versions above; the header's own names for them carry suffixes that the runtime does not see.
struct Driver {
#define SIMRT_MEMBER(name, version) void *name = nullptr;
  SIMRT_FUNCTIONS(SIMRT_MEMBER)
#undef SIMRT_MEMBER
};

// Calls a driver function through the pointer that cuGetProcAddress gave, with the types of the named symbol.
#define DRIVER(function, symbol, ...) \
  ::simrt::remember(reinterpret_cast<decltype(&::symbol)>(::simrt::driver().function)(__VA_ARGS__))

// Loads and initialises the driver on first use.
Driver &driver();
cudaError_t start();    // the driver works
cudaError_t current();  // and this thread has the primary context of its device current
// Turns a driver result into a runtime error and keeps it for cudaGetLastError.
cudaError_t remember(int result);
int current_device();

// What nvcc registered, looked up by the address of the host-side stand-in.
cudaError_t find_kernel(const void *host_function, CUkernel *kernel);
cudaError_t find_variable(const void *host_variable, CUdeviceptr *address, size_t *bytes);

// What every call that needs a device starts with.
#define SIMRT_CURRENT() \
  if (cudaError_t entry_error = ::simrt::current()) return entry_error

}  // namespace simrt
