#include "null_calls.h"

#include <cstdio>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "calls.h"

namespace vgpu::test {

namespace {

template <typename Function, typename Arguments>
void call(const char *symbol, int left_out, Function *function, const Arguments &arguments) {
  std::printf("%s %d ", symbol, left_out);
  std::fflush(stdout);
  std::printf("%d\n", static_cast<int>(std::apply(function, arguments)));
  std::fflush(stdout);
}

template <std::size_t kIndex, typename Function, typename... Parameters>
bool call_without(const char *symbol, Function *function, std::tuple<Parameters...> arguments) {
  if constexpr (std::is_pointer_v<std::tuple_element_t<kIndex, std::tuple<Parameters...>>>) {
    std::get<kIndex>(arguments) = nullptr;
    call(symbol, kIndex, function, arguments);
    return true;
  }
  return false;
}

template <typename Result, typename... Parameters>
void leave_out(const char *symbol, Result (*function)(Parameters...), std::type_identity_t<Parameters>... given) {
  const std::tuple<Parameters...> arguments(given...);
  const bool has_pointers = [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return (0 + ... + static_cast<int>(call_without<kIndex>(symbol, function, arguments))) > 0;
  }
  (std::index_sequence_for<Parameters...>());
  if (!has_pointers) call(symbol, -1, function, arguments);
}

#define LEAVE_OUT(symbol, ...) leave_out(#symbol, DRIVER(symbol) __VA_OPT__(, ) __VA_ARGS__)

// What the calls are about. Whatever they put into an output is lost: the process ends after them.
struct Things {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUmemoryPool pool = nullptr;
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  CUexternalMemory external = nullptr;
  CUgreenCtx green = nullptr;
  CUgraphNode node = nullptr;
  CUdeviceptr pointer = 0, piece = 0;
  CUdeviceptr_v1 pointer32 = 0;
  CUmemGenericAllocationHandle handle = 0;
  std::size_t size = 0, other_size = 0;
  unsigned size32 = 0, other_size32 = 0;
  void *address = nullptr;
  const std::string image = module_image(16);
  int descriptor = -1;
};

constexpr CUmemLocation on_device() {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return location;
}
constexpr CUmemLocation kDevice = on_device();

CUmemAllocationProp physical() {
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = kDevice;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return wanted;
}

CUmemPoolProps pool_properties() {
  CUmemPoolProps wanted = {};
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = kDevice;
  return wanted;
}

bool prepare(Things *t) {
  const CUmemAllocationProp wanted = physical();
  int result = DRIVER(cuInit)(0);
  result |= DRIVER(cuCtxCreate_v2)(&t->context, 0, 0);
  result |= DRIVER(cuModuleLoadData)(&t->module, t->image.c_str());
  result |= DRIVER(cuModuleGetFunction)(&t->function, t->module, "nothing");
  result |= DRIVER(cuLibraryLoadData)(&t->library, t->image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  result |= DRIVER(cuLibraryGetKernel)(&t->kernel, t->library, "nothing");
  result |= DRIVER(cuStreamCreate)(&t->stream, CU_STREAM_NON_BLOCKING);
  result |= DRIVER(cuEventCreate)(&t->event, 0);
  result |= DRIVER(cuGraphCreate)(&t->graph, 0);
  result |= DRIVER(cuGraphInstantiateWithFlags)(&t->exec, t->graph, 0);
  result |= DRIVER(cuDeviceGetDefaultMemPool)(&t->pool, 0);
  result |= DRIVER(cuMemAlloc_v2)(&t->pointer, 4 << 20);
  result |= DRIVER(cuMemAllocAsync)(&t->piece, 4096, t->stream);
  result |= DRIVER(cuMemCreate)(&t->handle, 2 << 20, &wanted, 0);
  result |= DRIVER(nvmlInit_v2)();
  return result == 0;
}

void contexts(Things &t) {
  CUdevResourceDesc none = nullptr;
  LEAVE_OUT(cuInit, 0);
  LEAVE_OUT(cuCtxCreate, &t.context, 0, 7);
  LEAVE_OUT(cuCtxCreate_v2, &t.context, 0, 0);
  LEAVE_OUT(cuCtxCreate_v3, &t.context, nullptr, 0, 0, 0);
  LEAVE_OUT(cuCtxCreate_v4, &t.context, nullptr, 0, 0);
  LEAVE_OUT(cuGLCtxCreate, &t.context, 0, 0);
  LEAVE_OUT(cuGLCtxCreate_v2, &t.context, 0, 0);
  LEAVE_OUT(cuVDPAUCtxCreate, &t.context, 0, 0, 0, nullptr);
  LEAVE_OUT(cuVDPAUCtxCreate_v2, &t.context, 0, 0, 0, nullptr);
  LEAVE_OUT(cuDevicePrimaryCtxRetain, &t.context, 0);
  LEAVE_OUT(cuGreenCtxCreate, &t.green, none, 0, CU_GREEN_CTX_DEFAULT_STREAM);
  LEAVE_OUT(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 1024);
  LEAVE_OUT(cuGreenCtxDestroy, t.green);
  LEAVE_OUT(cuCtxFromGreenCtx, &t.context, t.green);
  LEAVE_OUT(cuCtxAttach, &t.context, 0);
  LEAVE_OUT(cuCtxDetach, t.context);
  LEAVE_OUT(cuCtxDestroy, t.context);
  LEAVE_OUT(cuCtxDestroy_v2, t.context);
  LEAVE_OUT(cuDevicePrimaryCtxRelease, 1);
  LEAVE_OUT(cuDevicePrimaryCtxRelease_v2, 1);
  LEAVE_OUT(cuDevicePrimaryCtxReset, 1);
  LEAVE_OUT(cuDevicePrimaryCtxReset_v2, 1);
}

void modules(Things &t) {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUfunction function = nullptr;
  LEAVE_OUT(cuModuleLoad, &module, "/no/such/file");
  LEAVE_OUT(cuModuleLoadData, &module, t.image.c_str());
  LEAVE_OUT(cuModuleLoadDataEx, &module, t.image.c_str(), 0, nullptr, nullptr);
  LEAVE_OUT(cuModuleLoadFatBinary, &module, t.image.c_str());
  LEAVE_OUT(cuModuleUnload, t.module);
  LEAVE_OUT(cuLibraryLoadData, &library, t.image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  LEAVE_OUT(cuLibraryLoadFromFile, &library, "/no/such/file", nullptr, nullptr, 0, nullptr, nullptr, 0);
  LEAVE_OUT(cuLibraryUnload, t.library);
  LEAVE_OUT(cuLibraryGetModule, &module, t.library);
  LEAVE_OUT(cuLibraryGetGlobal, &t.pointer, &t.size, t.library, "table");
  LEAVE_OUT(cuLibraryGetManaged, &t.pointer, &t.size, t.library, "table");
  LEAVE_OUT(cuKernelGetFunction, &function, t.kernel);
  LEAVE_OUT(cuModuleGetFunction, &function, t.module, "nothing");
  LEAVE_OUT(cuLibraryGetKernel, &t.kernel, t.library, "nothing");
  LEAVE_OUT(cuFuncLoad, t.function);
}

void memory(Things &t) {
  CUDA_ARRAY_DESCRIPTOR flat = {64, 64, CU_AD_FORMAT_FLOAT, 1};
  CUDA_ARRAY_DESCRIPTOR_v1 flat32 = {64, 64, CU_AD_FORMAT_FLOAT, 1};
  CUDA_ARRAY3D_DESCRIPTOR deep = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUDA_ARRAY3D_DESCRIPTOR_v1 deep32 = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUdeviceptr made = 0;
  LEAVE_OUT(cuMemAlloc, &t.pointer32, 4096);
  LEAVE_OUT(cuMemAlloc_v2, &made, 4096);
  LEAVE_OUT(cuMemAllocPitch, &t.pointer32, &t.size32, 100, 100, 4);
  LEAVE_OUT(cuMemAllocPitch_v2, &made, &t.size, 100, 100, 4);
  LEAVE_OUT(cuMemAllocManaged, &made, 4096, CU_MEM_ATTACH_GLOBAL);
  LEAVE_OUT(cuMemFree, 0);
  LEAVE_OUT(cuMemFree_v2, 0);
  LEAVE_OUT(cuArrayCreate, &t.array, &flat32);
  LEAVE_OUT(cuArrayCreate_v2, &t.array, &flat);
  LEAVE_OUT(cuArray3DCreate, &t.array, &deep32);
  LEAVE_OUT(cuArray3DCreate_v2, &t.array, &deep);
  LEAVE_OUT(cuMipmappedArrayCreate, &t.mipmap, &deep, 1);
  LEAVE_OUT(cuArrayDestroy, t.array);
  LEAVE_OUT(cuMipmappedArrayDestroy, t.mipmap);
  LEAVE_OUT(cuMemGetInfo, &t.size32, &t.other_size32);
  LEAVE_OUT(cuMemGetInfo_v2, &t.size, &t.other_size);
  leave_out("cuMemGetInfo_v2 of nothing", DRIVER(cuMemGetInfo_v2), nullptr, nullptr);
  leave_out("cuMemGetInfo of nothing", DRIVER(cuMemGetInfo), nullptr, nullptr);
  LEAVE_OUT(cuDeviceTotalMem, &t.size32, 0);
  LEAVE_OUT(cuDeviceTotalMem_v2, &t.size, 0);
  LEAVE_OUT(cuGetProcAddress, "cuMemAlloc", &t.address, 13000, 0);
  LEAVE_OUT(cuGetProcAddress_v2, "cuMemAlloc", &t.address, 13000, 0, nullptr);
}

void pools(Things &t) {
  CUmemLocation location = kDevice;
  const CUmemPoolProps wanted = pool_properties();
  CUmemoryPool pool = nullptr;
  CUdeviceptr made = 0;
  LEAVE_OUT(cuMemAllocAsync, &made, 4096, t.stream);
  LEAVE_OUT(cuMemAllocAsync_ptsz, &made, 4096, t.stream);
  LEAVE_OUT(cuMemAllocFromPoolAsync, &made, 4096, t.pool, t.stream);
  LEAVE_OUT(cuMemAllocFromPoolAsync_ptsz, &made, 4096, t.pool, t.stream);
  LEAVE_OUT(cuMemFreeAsync, 0, t.stream);
  LEAVE_OUT(cuMemFreeAsync_ptsz, 0, t.stream);
  LEAVE_OUT(cuMemPoolCreate, &pool, &wanted);
  LEAVE_OUT(cuMemPoolDestroy, pool);
  LEAVE_OUT(cuMemGetDefaultMemPool, &pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
  LEAVE_OUT(cuMemGetMemPool, &pool, &location, CU_MEM_ALLOCATION_TYPE_MANAGED);
  LEAVE_OUT(cuMemPoolTrimTo, t.pool, 0);
  LEAVE_OUT(cuCtxSynchronize);
  LEAVE_OUT(cuCtxSynchronize_v2, t.context);
  LEAVE_OUT(cuStreamSynchronize, t.stream);
  LEAVE_OUT(cuStreamSynchronize_ptsz, t.stream);
  LEAVE_OUT(cuEventSynchronize, t.event);
}

void sharing(Things &t) {
  const CUmemAllocationProp wanted = physical();
  CUarrayMapInfo part = {};
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC external = {};
  CUipcMemHandle shared = {};
  CUmemPoolPtrExportData exported = {};
  CUmemGenericAllocationHandle made = 0;
  CUdeviceptr pointer = 0;
  LEAVE_OUT(cuMemCreate, &made, 2 << 20, &wanted, 0);
  LEAVE_OUT(cuMemRelease, 0);
  LEAVE_OUT(cuMemRetainAllocationHandle, &made, t.address);
  LEAVE_OUT(cuMemMap, 0, 2 << 20, 0, t.handle, 0);
  LEAVE_OUT(cuMemUnmap, 0, 2 << 20);
  LEAVE_OUT(cuMemMapArrayAsync, &part, 1, t.stream);
  LEAVE_OUT(cuMemMapArrayAsync_ptsz, &part, 1, t.stream);
  LEAVE_OUT(cuMemExportToShareableHandle, &t.descriptor, t.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  LEAVE_OUT(cuMemImportFromShareableHandle, &made, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  LEAVE_OUT(cuMulticastBindMem, 0, 0, t.handle, 0, 2 << 20, 0);
  LEAVE_OUT(cuMulticastBindAddr, 0, 0, t.pointer, 2 << 20, 0);
  LEAVE_OUT(cuImportExternalMemory, &t.external, &external);
  LEAVE_OUT(cuDestroyExternalMemory, t.external);
  LEAVE_OUT(cuIpcGetMemHandle, &shared, t.pointer);
  LEAVE_OUT(cuIpcOpenMemHandle, &pointer, shared, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  LEAVE_OUT(cuIpcOpenMemHandle_v2, &pointer, shared, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  LEAVE_OUT(cuIpcCloseMemHandle, 0);
  LEAVE_OUT(cuMemPoolExportPointer, &exported, t.piece);
  LEAVE_OUT(cuMemPoolImportPointer, &pointer, t.pool, &exported);
  LEAVE_OUT(cuMemPoolImportFromShareableHandle, &t.pool, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  LEAVE_OUT(cuMemPoolExportToShareableHandle, &t.descriptor, t.pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  LEAVE_OUT(cuMemGetHandleForAddressRange, &t.descriptor, t.pointer, 2 << 20, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

void graphs(Things &t) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  allocation.poolProps = pool_properties();
  allocation.bytesize = 4096;
  CUgraphNodeParams node = {};
  node.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraphExec exec = nullptr;
  char log[64] = "";
  CUgraphExecUpdateResult updated = {};
  CUgraphExecUpdateResultInfo update = {};
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  CUgraph empty = nullptr;
  DRIVER(cuGraphCreate)(&empty, 0);
  LEAVE_OUT(cuGraphInstantiate, &exec, empty, &t.node, log, sizeof log);
  LEAVE_OUT(cuGraphInstantiate_v2, &exec, empty, &t.node, log, sizeof log);
  LEAVE_OUT(cuGraphInstantiateWithFlags, &exec, empty, 0);
  LEAVE_OUT(cuGraphInstantiateWithParams, &exec, empty, &params);
  LEAVE_OUT(cuGraphInstantiateWithParams_ptsz, &exec, empty, &params);
  LEAVE_OUT(cuGraphExecUpdate, t.exec, empty, &t.node, &updated);
  LEAVE_OUT(cuGraphExecUpdate_v2, t.exec, empty, &update);
  LEAVE_OUT(cuGraphExecDestroy, t.exec);
  LEAVE_OUT(cuGraphLaunch, t.exec, t.stream);
  LEAVE_OUT(cuGraphLaunch_ptsz, t.exec, t.stream);
  LEAVE_OUT(cuGraphUpload, t.exec, t.stream);
  LEAVE_OUT(cuGraphUpload_ptsz, t.exec, t.stream);
  LEAVE_OUT(cuDeviceGraphMemTrim, 0);
  LEAVE_OUT(cuGraphAddMemAllocNode, &t.node, t.graph, nullptr, 0, &allocation);
  LEAVE_OUT(cuGraphAddNode, &t.node, t.graph, nullptr, 0, &node);
  LEAVE_OUT(cuGraphAddNode_v2, &t.node, t.graph, nullptr, nullptr, 0, &node);
}

void launches(Things &t) {
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = t.stream;
  CUDA_LAUNCH_PARAMS part = {t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, nullptr};
  CUgraph captured = nullptr;
  LEAVE_OUT(cuLaunchKernel, t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, nullptr, nullptr);
  LEAVE_OUT(cuLaunchKernel_ptsz, t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, nullptr, nullptr);
  LEAVE_OUT(cuLaunchKernelEx, &config, t.function, nullptr, nullptr);
  LEAVE_OUT(cuLaunchKernelEx_ptsz, &config, t.function, nullptr, nullptr);
  LEAVE_OUT(cuLaunchCooperativeKernel, t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, nullptr);
  LEAVE_OUT(cuLaunchCooperativeKernel_ptsz, t.function, 1, 1, 1, 1, 1, 1, 0, t.stream, nullptr);
  LEAVE_OUT(cuLaunchCooperativeKernelMultiDevice, &part, 1, 0);
  LEAVE_OUT(cuLaunch, t.function);
  LEAVE_OUT(cuLaunchGrid, t.function, 1, 1);
  LEAVE_OUT(cuLaunchGridAsync, t.function, 1, 1, t.stream);
  LEAVE_OUT(cuStreamBeginCapture, t.stream);
  LEAVE_OUT(cuStreamBeginCapture_ptsz, t.stream);
  LEAVE_OUT(cuStreamBeginCapture_v2, t.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  LEAVE_OUT(cuStreamBeginCapture_v2_ptsz, t.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  LEAVE_OUT(cuStreamEndCapture, t.stream, &captured);
  LEAVE_OUT(cuStreamEndCapture_ptsz, t.stream, &captured);
  LEAVE_OUT(cuStreamBeginCaptureToGraph, t.stream, nullptr, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
  LEAVE_OUT(cuStreamBeginCaptureToGraph_ptsz, t.stream, nullptr, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
  float ms = 0;
  LEAVE_OUT(cuEventRecord, t.event, t.stream);
  LEAVE_OUT(cuEventRecord_ptsz, t.event, t.stream);
  LEAVE_OUT(cuEventRecordWithFlags, t.event, t.stream, 0);
  LEAVE_OUT(cuEventRecordWithFlags_ptsz, t.event, t.stream, 0);
  LEAVE_OUT(cuEventElapsedTime, &ms, t.event, t.event);
  LEAVE_OUT(cuEventElapsedTime_v2, &ms, t.event, t.event);
  LEAVE_OUT(cuEventDestroy, t.event);
  LEAVE_OUT(cuEventDestroy_v2, t.event);
  LEAVE_OUT(cuStreamDestroy, t.stream);
  LEAVE_OUT(cuStreamDestroy_v2, t.stream);
}

void nvml() {
  nvmlDevice_t gpu = nullptr;
  DRIVER(nvmlDeviceGetHandleByIndex_v2)(0, &gpu);
  nvmlMemory_t memory = {};
  nvmlMemory_v2_t memory2 = {};
  memory2.version = nvmlMemory_v2;
  nvmlBAR1Memory_t bar1 = {};
  nvmlProcessInfo_v1_t processes1[4] = {};
  nvmlProcessInfo_v2_t processes[4] = {};
  nvmlProcessDetailList_t details = {};
  details.version = nvmlProcessDetailList_v1;
  nvmlAccountingStats_t stats = {};
  nvmlEncoderSessionInfo_t encoders[4] = {};
  nvmlFBCSessionInfo_t captures[4] = {};
  nvmlProcessUtilizationSample_t samples[4] = {};
  nvmlProcessesUtilizationInfo_t utilisation = {};
  utilisation.version = nvmlProcessesUtilizationInfo_v1;
  nvmlUtilization_t rates = {};
  nvmlGpuDynamicPstatesInfo_t states = {};
  unsigned count = 4, pids[4] = {}, value = 0, other = 0;
  LEAVE_OUT(nvmlDeviceGetMemoryInfo, gpu, &memory);
  LEAVE_OUT(nvmlDeviceGetMemoryInfo_v2, gpu, &memory2);
  LEAVE_OUT(nvmlDeviceGetBAR1MemoryInfo, gpu, &bar1);
  LEAVE_OUT(nvmlDeviceGetComputeRunningProcesses, gpu, &count, processes1);
  LEAVE_OUT(nvmlDeviceGetGraphicsRunningProcesses, gpu, &count, processes1);
  LEAVE_OUT(nvmlDeviceGetMPSComputeRunningProcesses, gpu, &count, processes1);
  LEAVE_OUT(nvmlDeviceGetComputeRunningProcesses_v2, gpu, &count, processes);
  LEAVE_OUT(nvmlDeviceGetGraphicsRunningProcesses_v2, gpu, &count, processes);
  LEAVE_OUT(nvmlDeviceGetMPSComputeRunningProcesses_v2, gpu, &count, processes);
  const auto list = reinterpret_cast<nvmlProcessInfo_t *>(processes);
  LEAVE_OUT(nvmlDeviceGetComputeRunningProcesses_v3, gpu, &count, list);
  LEAVE_OUT(nvmlDeviceGetGraphicsRunningProcesses_v3, gpu, &count, list);
  LEAVE_OUT(nvmlDeviceGetMPSComputeRunningProcesses_v3, gpu, &count, list);
  LEAVE_OUT(nvmlDeviceGetRunningProcessDetailList, gpu, &details);
  LEAVE_OUT(nvmlDeviceGetAccountingPids, gpu, &count, pids);
  LEAVE_OUT(nvmlDeviceGetAccountingStats, gpu, 1, &stats);
  LEAVE_OUT(nvmlDeviceGetEncoderSessions, gpu, &count, encoders);
  LEAVE_OUT(nvmlDeviceGetFBCSessions, gpu, &count, captures);
  LEAVE_OUT(nvmlDeviceGetProcessUtilization, gpu, samples, &count, 0);
  LEAVE_OUT(nvmlDeviceGetProcessesUtilizationInfo, gpu, &utilisation);
  LEAVE_OUT(nvmlDeviceGetUtilizationRates, gpu, &rates);
  LEAVE_OUT(nvmlDeviceGetDynamicPstatesInfo, gpu, &states);
  LEAVE_OUT(nvmlDeviceGetEncoderUtilization, gpu, &value, &other);
  LEAVE_OUT(nvmlDeviceGetDecoderUtilization, gpu, &value, &other);
}

}  // namespace

int run_null_calls() {
  Things things;
  if (!prepare(&things)) return 1;
  memory(things);
  modules(things);
  pools(things);
  sharing(things);
  graphs(things);
  launches(things);
  nvml();
  contexts(things);
  return 0;
}

}  // namespace vgpu::test
