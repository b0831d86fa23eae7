// The runtime's calls for memory, streams, events and graphs: each is the driver's, with the primary context current.
#include <cstring>

#include "simgpu/runtime/driver.h"

using namespace simrt;

namespace {

CUdeviceptr device(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void **out, size_t bytes) {
  SIMRT_CURRENT();
  CUdeviceptr address = 0;
  if (bytes == 0) {
    *out = nullptr;
    return cudaSuccess;
  }
  cudaError_t error = DRIVER(cuMemAlloc, cuMemAlloc_v2, &address, bytes);
  if (error == cudaSuccess) *out = reinterpret_cast<void *>(address);
  return error;
}
cudaError_t cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
  SIMRT_CURRENT();
  CUdeviceptr address = 0;
  cudaError_t error = DRIVER(cuMemAllocPitch, cuMemAllocPitch_v2, &address, pitch, width, height, 4);
  if (error == cudaSuccess) *out = reinterpret_cast<void *>(address);
  return error;
}
cudaError_t cudaFree(void *pointer) {
  SIMRT_CURRENT();
  return DRIVER(cuMemFree, cuMemFree_v2, device(pointer));
}
cudaError_t cudaMallocManaged(void **out, size_t bytes, unsigned int flags) {
  SIMRT_CURRENT();
  CUdeviceptr address = 0;
  cudaError_t error = DRIVER(cuMemAllocManaged, cuMemAllocManaged, &address, bytes, flags);
  if (error == cudaSuccess) *out = reinterpret_cast<void *>(address);
  return error;
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags) {
  SIMRT_CURRENT();
  return DRIVER(cuMemHostAlloc, cuMemHostAlloc, out, bytes, flags);
}
cudaError_t cudaMallocHost(void **out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); }
cudaError_t cudaFreeHost(void *pointer) {
  SIMRT_CURRENT();
  return DRIVER(cuMemFreeHost, cuMemFreeHost, pointer);
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  SIMRT_CURRENT();
  return DRIVER(cuMemGetInfo, cuMemGetInfo_v2, free, total);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
  SIMRT_CURRENT();
  return DRIVER(cuMemcpy, cuMemcpy, device(to), device(from), bytes);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  SIMRT_CURRENT();
  return DRIVER(cuMemcpyAsync, cuMemcpyAsync, device(to), device(from), bytes, stream);
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  SIMRT_CURRENT();
  return DRIVER(cuMemsetD8, cuMemsetD8_v2, device(to), static_cast<unsigned char>(value), bytes);
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  SIMRT_CURRENT();
  return DRIVER(cuMemsetD8Async, cuMemsetD8Async, device(to), static_cast<unsigned char>(value), bytes, stream);
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  void *address = nullptr;
  cudaError_t error = cudaGetSymbolAddress(&address, symbol);
  return error == cudaSuccess ? cudaMemcpy(static_cast<char *>(address) + offset, from, bytes, kind) : error;
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  void *address = nullptr;
  cudaError_t error = cudaGetSymbolAddress(&address, symbol);
  return error == cudaSuccess ? cudaMemcpy(to, static_cast<char *>(address) + offset, bytes, kind) : error;
}
cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t bytes, cudaMemLocation location, unsigned int flags,
                                 cudaStream_t stream) {
  SIMRT_CURRENT();
  CUmemLocation where{};
  memcpy(&where, &location, sizeof where);
  return DRIVER(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, device(pointer), bytes, where, flags, stream);
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) {
  SIMRT_CURRENT();
  CUdeviceptr address = 0;
  cudaError_t error = DRIVER(cuMemAllocAsync, cuMemAllocAsync, &address, bytes, stream);
  if (error == cudaSuccess) *out = reinterpret_cast<void *>(address);
  return error;
}
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
  SIMRT_CURRENT();
  return DRIVER(cuMemFreeAsync, cuMemFreeAsync, device(pointer), stream);
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int ordinal) {
  SIMRT_CURRENT();
  return DRIVER(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, pool, ordinal);
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
  SIMRT_CURRENT();
  return DRIVER(cuMemPoolGetAttribute, cuMemPoolGetAttribute, pool, static_cast<CUmemPool_attribute>(attribute), value);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
  SIMRT_CURRENT();
  return DRIVER(cuMemPoolSetAttribute, cuMemPoolSetAttribute, pool, static_cast<CUmemPool_attribute>(attribute), value);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  SIMRT_CURRENT();
  return DRIVER(cuMemPoolTrimTo, cuMemPoolTrimTo, pool, keep);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  SIMRT_CURRENT();
  return DRIVER(cuStreamCreate, cuStreamCreate, stream, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  SIMRT_CURRENT();
  return DRIVER(cuStreamDestroy, cuStreamDestroy_v2, stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  SIMRT_CURRENT();
  return DRIVER(cuStreamSynchronize, cuStreamSynchronize, stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  SIMRT_CURRENT();
  return DRIVER(cuStreamQuery, cuStreamQuery, stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  SIMRT_CURRENT();
  return DRIVER(cuStreamWaitEvent, cuStreamWaitEvent, stream, event, flags);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
  SIMRT_CURRENT();
  return DRIVER(cuLaunchHostFunc, cuLaunchHostFunc, stream, fn, data);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  SIMRT_CURRENT();
  return DRIVER(cuEventCreate, cuEventCreate, event, flags);
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  SIMRT_CURRENT();
  return DRIVER(cuEventDestroy, cuEventDestroy_v2, event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  SIMRT_CURRENT();
  return DRIVER(cuEventRecord, cuEventRecord, event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  SIMRT_CURRENT();
  return DRIVER(cuEventQuery, cuEventQuery, event);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  SIMRT_CURRENT();
  return DRIVER(cuEventSynchronize, cuEventSynchronize, event);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  SIMRT_CURRENT();
  return DRIVER(cuEventElapsedTime, cuEventElapsedTime, ms, start, end);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  SIMRT_CURRENT();
  return DRIVER(cuStreamBeginCapture, cuStreamBeginCapture_v2, stream, static_cast<CUstreamCaptureMode>(mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  SIMRT_CURRENT();
  return DRIVER(cuStreamEndCapture, cuStreamEndCapture, stream, graph);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  SIMRT_CURRENT();
  return DRIVER(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, exec, graph, flags);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  SIMRT_CURRENT();
  return DRIVER(cuGraphGetNodes, cuGraphGetNodes, graph, nodes, count);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  SIMRT_CURRENT();
  return DRIVER(cuGraphLaunch, cuGraphLaunch, exec, stream);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  SIMRT_CURRENT();
  return DRIVER(cuGraphExecDestroy, cuGraphExecDestroy, exec);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  SIMRT_CURRENT();
  return DRIVER(cuGraphDestroy, cuGraphDestroy, graph);
}
cudaError_t cudaDeviceGraphMemTrim(int ordinal) {
  SIMRT_CURRENT();
  return DRIVER(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, ordinal);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer) {
  SIMRT_CURRENT();
  return DRIVER(cuIpcGetMemHandle, cuIpcGetMemHandle, reinterpret_cast<CUipcMemHandle *>(handle), device(pointer));
}
cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned int flags) {
  SIMRT_CURRENT();
  CUipcMemHandle driver_handle;
  memcpy(&driver_handle, &handle, sizeof driver_handle);
  CUdeviceptr address = 0;
  cudaError_t error = DRIVER(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, &address, driver_handle, flags);
  if (error == cudaSuccess) *out = reinterpret_cast<void *>(address);
  return error;
}
cudaError_t cudaIpcCloseMemHandle(void *pointer) {
  SIMRT_CURRENT();
  return DRIVER(cuIpcCloseMemHandle, cuIpcCloseMemHandle, device(pointer));
}

}  // extern "C"
