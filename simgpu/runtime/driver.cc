#include "simgpu/runtime/driver.h"

#include <dlfcn.h>

#include <mutex>

namespace simrt {
namespace {

cudaError_t g_start_error = cudaErrorInitializationError;
thread_local cudaError_t t_last = cudaSuccess;
thread_local int t_device = 0;
thread_local int t_bound = -1;

Driver *load_driver() {
  auto *table = new Driver;
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    g_start_error = cudaErrorInsufficientDriver;
    return table;
  }
  auto get = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    g_start_error = cudaErrorInsufficientDriver;
    return table;
  }
  CUdriverProcAddressQueryResult status;
#define SIMRT_FETCH(name, version) get(#name, &table->name, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  SIMRT_FUNCTIONS(SIMRT_FETCH)
#undef SIMRT_FETCH
  if (table->cuInit != nullptr)
    g_start_error = static_cast<cudaError_t>(reinterpret_cast<decltype(&cuInit)>(table->cuInit)(0));
  return table;
}

}  // namespace

Driver &driver() {
  static Driver *table = load_driver();
  return *table;
}

cudaError_t start() {
  driver();
  return remember(g_start_error);
}

int current_device() { return t_device; }

cudaError_t current() {
  if (cudaError_t error = start()) return error;
  if (t_bound == t_device) {
    // The program may have changed the context behind our back, as it may with the real runtime.
    CUcontext context = nullptr;
    if (reinterpret_cast<decltype(&cuCtxGetCurrent)>(driver().cuCtxGetCurrent)(&context) == CUDA_SUCCESS &&
        context != nullptr)
      return cudaSuccess;
  }
  CUcontext context;
  if (cudaError_t error = DRIVER(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, &context, t_device)) return error;
  t_bound = t_device;
  return DRIVER(cuCtxSetCurrent, cuCtxSetCurrent, context);
}

cudaError_t remember(int result) {
  auto error = static_cast<cudaError_t>(result);
  if (error != cudaSuccess && error != cudaErrorNotReady) t_last = error;
  return error;
}

}  // namespace simrt

using namespace simrt;

extern "C" {

cudaError_t cudaGetLastError(void) {
  cudaError_t error = t_last;
  t_last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) { return t_last; }

const char *cudaGetErrorName(cudaError_t error) {
  const char *text = nullptr;
  if (driver().cuGetErrorName != nullptr)
    reinterpret_cast<decltype(&cuGetErrorName)>(driver().cuGetErrorName)(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t error) {
  const char *text = nullptr;
  if (driver().cuGetErrorString != nullptr)
    reinterpret_cast<decltype(&cuGetErrorString)>(driver().cuGetErrorString)(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int *count) {
  if (cudaError_t error = start()) return error;
  return DRIVER(cuDeviceGetCount, cuDeviceGetCount, count);
}
cudaError_t cudaSetDevice(int device) {
  int count = 0;
  if (cudaError_t error = cudaGetDeviceCount(&count)) return error;
  if (device < 0 || device >= count) return remember(cudaErrorInvalidDevice);
  t_device = device;
  return current();
}
cudaError_t cudaGetDevice(int *device) {
  if (cudaError_t error = start()) return error;
  *device = t_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  SIMRT_CURRENT();
  return DRIVER(cuCtxSynchronize, cuCtxSynchronize);
}
cudaError_t cudaDeviceReset(void) {
  if (cudaError_t error = start()) return error;
  t_bound = -1;
  return DRIVER(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, t_device);
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  if (cudaError_t error = start()) return error;
  return DRIVER(cuDeviceGetAttribute, cuDeviceGetAttribute, value, static_cast<CUdevice_attribute>(attribute), device);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  if (cudaError_t error = start()) return error;
  *properties = {};
  if (cudaError_t error = DRIVER(cuDeviceGetName, cuDeviceGetName, properties->name, sizeof properties->name, device))
    return error;
  DRIVER(cuDeviceGetUuid, cuDeviceGetUuid_v2, reinterpret_cast<CUuuid *>(&properties->uuid), device);
  DRIVER(cuDeviceTotalMem, cuDeviceTotalMem_v2, &properties->totalGlobalMem, device);
  cudaDeviceGetAttribute(&properties->major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&properties->minor, cudaDevAttrComputeCapabilityMinor, device);
  cudaDeviceGetAttribute(&properties->multiProcessorCount, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&properties->warpSize, cudaDevAttrWarpSize, device);
  cudaDeviceGetAttribute(&properties->maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock, device);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
  if (cudaError_t error = start()) return error;
  return DRIVER(cuDriverGetVersion, cuDriverGetVersion, version);
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
