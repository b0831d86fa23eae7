// The driver's and NVML's own declarations, every symbol under its exact name, whichever toolkit is at hand.
//
// No symbol ever changed its prototype; only the macros that rename them did, and those are switched off (the build sets
// __CUDA_API_VERSION_INTERNAL and NVML_NO_UNVERSIONED_FUNC_DEFS). What a toolkit is too old to know is declared here, so
// that the library has the same hooks whatever it was built with. tests/libvgpu/old_toolkit.sh checks all of it.
#pragma once

// What is hooked is exported; everything else in this library is not.
#pragma GCC visibility push(default)
#include <cuda.h>
#include <nvml.h>

#ifndef __CUDA_API_VERSION_INTERNAL
#error compile with -D__CUDA_API_VERSION_INTERNAL: the renaming macros would change what is hooked
#endif

extern "C" {

#if CUDA_VERSION < 12000
typedef int CUdriverProcAddressQueryResult;
typedef struct CUlib_st *CUlibrary;
typedef int CUlibraryOption;
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status);
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count);
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *name, CUjit_option *jit_options, void **jit_values,
                               unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library);
CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name);
CUresult cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name);
typedef struct CUkern_st *CUkernel;
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st CUDA_GRAPH_INSTANTIATE_PARAMS;
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params);
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params);
typedef struct CUgraphExecUpdateResultInfo_st CUgraphExecUpdateResultInfo;
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *status);
#endif

#if CUDA_VERSION < 12010
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                            CUmemGenericAllocationHandle memory, size_t offset, size_t bytes, unsigned long long flags);
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset, CUdeviceptr memory,
                             size_t bytes, unsigned long long flags);
#endif

#if CUDA_VERSION < 12020
typedef struct {
  CUgraphNodeType type;
  int reserved[63];
} CUgraphNodeParams;
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *params);
#endif

#if CUDA_VERSION < 12030
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode);
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params);
#endif

#if CUDA_VERSION < 12040
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device, unsigned int flags);
CUresult cuGreenCtxDestroy(CUgreenCtx context);
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
CUresult cuFuncLoad(CUfunction function);
#endif

#if CUDA_VERSION < 12050
typedef struct CUctxCreateParams_st CUctxCreateParams;
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device);
#endif

#if CUDA_VERSION < 12080
CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end);
#endif

#if CUDA_VERSION < 13000
CUresult cuCtxSynchronize_v2(CUcontext context);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type);
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type);
#endif

// NVML names its structures by macros, so these tell whether the header knows them.
#ifndef nvmlProcessDetailList_v1
typedef struct {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId;
  unsigned int computeInstanceId;
  unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;
typedef struct {
  unsigned int version;
  unsigned int mode;
  unsigned int numProcArrayEntries;
  nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;
typedef nvmlProcessDetailList_v1_t nvmlProcessDetailList_t;
#define nvmlProcessDetailList_v1 (unsigned int)(sizeof(nvmlProcessDetailList_v1_t) | (1 << 24U))
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list);
#endif

#ifndef nvmlProcessesUtilizationInfo_v1
typedef struct {
  unsigned long long timeStamp;
  unsigned int pid;
  unsigned int smUtil;
  unsigned int memUtil;
  unsigned int encUtil;
  unsigned int decUtil;
  unsigned int jpgUtil;
  unsigned int ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;
typedef struct {
  unsigned int version;
  unsigned int processSamplesCount;
  unsigned long long lastSeenTimeStamp;
  nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;
typedef nvmlProcessesUtilizationInfo_v1_t nvmlProcessesUtilizationInfo_t;
#define nvmlProcessesUtilizationInfo_v1 (unsigned int)(sizeof(nvmlProcessesUtilizationInfo_v1_t) | (1 << 24U))
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info);
#endif

// cudaGL.h and cudaVDPAU.h want the graphics libraries' headers. These four make contexts like any other.
CUresult cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device, unsigned int vdp_device,
                          void *vdp_get_proc_address);
CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device, unsigned int vdp_device,
                             void *vdp_get_proc_address);
}

#pragma GCC visibility pop
