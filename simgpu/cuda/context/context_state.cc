// Queries and settings of the current context.
#include "simgpu/cuda/context/context.h"
#include "simgpu/cuda/core.h"
#include "simgpu/cuda/memory/pool.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

extern "C" {

CUresult cuCtxGetDevice(CUdevice *device) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  Context *context = top_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
  if (ctx == nullptr) return cuCtxGetDevice(device);
  SIMGPU_DRIVER(driver);
  (void)driver;
  Context *context = valid_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  SIMGPU_CONTEXT(driver, context);
  if (CUresult result = forbid_unsafe_call(driver)) return result;
  drain_context(driver, context);
  settle_pools(driver);
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  if (ctx == nullptr) return cuCtxSynchronize();
  SIMGPU_DRIVER(driver);
  Context *context = valid_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (CUresult result = forbid_unsafe_call(driver)) return result;
  drain_context(driver, context);
  settle_pools(driver);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  Context *context = ctx == nullptr ? top_context() : valid_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  Context *context = ctx == nullptr ? top_context() : valid_context(ctx);
  if (context == nullptr || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  if (value == nullptr || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

// The device heap and printf buffer are memory: what exceeds the defaults (which the context's own cost covers) is taken.
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  SIMGPU_CONTEXT(driver, context);
  if (limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  DriverLock lock(driver->mutex);
  size_t old = context->limits[limit];
  context->limits[limit] = value;
  auto beyond = [context](CUlimit which, size_t standard) {
    return context->limits[which] > standard ? context->limits[which] - standard : 0;
  };
  uint64_t bytes = beyond(CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20) + beyond(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20);
  uint64_t blocks = round_up(bytes, kBlockBytes) / kBlockBytes;
  if (blocks > context->heap.size()) {
    uint64_t missing = blocks - context->heap.size();
    if (!take_blocks(driver, context->device, missing * kBlockBytes, BlockUse::kHeap, &context->heap)) {
      context->limits[limit] = old;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  } else if (blocks < context->heap.size()) {
    BlockList surplus(context->heap.begin() + static_cast<ptrdiff_t>(blocks), context->heap.end());
    context->heap.resize(blocks);
    context->device->blocks.give(surplus, false);
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = context->cache_config;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  context->cache_config = config;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = context->shared_config;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  context->shared_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  (void)context;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  (void)context;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  SIMGPU_CONTEXT(driver, context);
  Context *other = valid_context(peer);
  if (other == nullptr || !other->alive) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (other->device == context->device) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock(driver->mutex);
  return context->peers.insert(other->device).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  SIMGPU_CONTEXT(driver, context);
  Context *other = valid_context(peer);
  if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  DriverLock lock(driver->mutex);
  return context->peers.erase(other->device) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer) {
  SIMGPU_DRIVER(driver);
  if (driver->device(dev) == nullptr || driver->device(peer) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = dev != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
