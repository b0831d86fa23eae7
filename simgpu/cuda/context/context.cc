#include "simgpu/cuda/context/context.h"

#include <vector>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/memory/array.h"
#include "simgpu/cuda/module/module.h"
#include "simgpu/cuda/stream/stream.h"

namespace simgpu {

CUresult create_context(Driver *driver, Device *device, unsigned flags, bool primary, Context **out) {
  if (device->broken()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (!driver->link.alive()) return CUDA_ERROR_OPERATING_SYSTEM;
  auto *context = new Context;
  if (!take_blocks(driver, device, round_up(device->facts().context_bytes, device->facts().block_bytes),
                   BlockUse::kContext, &context->overhead)) {
    delete context;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  context->device = device;
  context->flags = flags;
  context->primary = primary;
  context->id = driver->next_id++;
  context->limits[CU_LIMIT_STACK_SIZE] = 1024;
  context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  context->legacy_stream = make_stream(driver, context, CU_STREAM_DEFAULT, 0);
  context->legacy_stream->legacy = true;
  driver->contexts.insert(context);
  if (device->books->contexts.fetch_add(1) == 0)
    device->books->visible_at_ns.store(monotonic_ns() + device->facts().visibility_ns);
  *out = context;
  return CUDA_SUCCESS;
}

// Frees all that the context owns. The streams were drained before, without the lock.
void destroy_context(Driver *driver, Context *context) {
  while (!context->modules.empty()) unload_module(driver, *context->modules.begin());
  drop_pieces_of(driver, context);
  while (context->areas != nullptr) free_area(driver, context->areas);
  for (auto &by_class : context->partial_slabs)
    for (auto &list : by_class) list = {};
  for (auto it = driver->host_ranges.begin(); it != driver->host_ranges.end();)
    it = it->second.context == context ? release_host_range(driver, it) : std::next(it);
  for (Stream *stream : context->streams) {
    close_stream(stream);
    leave_capture(driver, stream);
    stream->magic = 0;
    delete stream;
  }
  context->streams = {};
  for (Event *event : context->events) {
    event->magic = 0;
    delete event;
  }
  context->events = {};
  context->legacy_stream = nullptr;
  Device *device = context->device;
  device->blocks.give(context->heap, false);
  device->blocks.give(context->overhead, false);
  device->blocks.give(context->code, false);
  device->blocks.give(context->local_memory, false);
  context->heap = {};
  context->code = {};
  context->local_memory = {};
  context->overhead = {};
  context->alive = false;
  driver->contexts.erase(context);
  driver->dead_contexts.push_back(context);
  if (device->books->contexts.fetch_sub(1) == 1) device->books->visible_at_ns.store(0);
}

namespace {

bool push(Context *context) {
  if (t_thread.depth == static_cast<int>(sizeof t_thread.stack / sizeof t_thread.stack[0])) return false;
  t_thread.stack[t_thread.depth++] = context;
  return true;
}

void drop_from_thread(Context *context) {
  if (top_context() == context) t_thread.depth--;
}

CUresult create_and_push(CUcontext *out, unsigned flags, CUdevice ordinal, unsigned api_version) {
  SIMGPU_DRIVER(driver);
  if (out == nullptr || (flags & CU_CTX_SCHED_MASK) > CU_CTX_SCHED_BLOCKING_SYNC) return CUDA_ERROR_INVALID_VALUE;
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context *context;
  DriverLock lock(driver->mutex);
  CUresult result = create_context(driver, device, flags, false, &context);
  if (result != CUDA_SUCCESS) return result;
  context->references = 1;
  context->api_version = api_version;
  if (!push(context)) {
    destroy_context(driver, context);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = reinterpret_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
  SIMGPU_DRIVER(driver);
  Context *context = valid_context(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  drain_context(driver, context);
  DriverLock lock(driver->mutex);
  drop_from_thread(context);
  destroy_context(driver, context);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult release_primary(Driver *driver, Device *device, bool reset) {
  if (!reset) {
    if (device->primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device->primary_references > 0) return CUDA_SUCCESS;
  }
  Context *context = device->primary;
  if (context == nullptr) return CUDA_SUCCESS;  // reset since it was retained
  device->primary = nullptr;
  destroy_context(driver, context);
  return CUDA_SUCCESS;
}

}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  return create_and_push(pctx, flags, dev, 3010);
}
CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  return create_and_push(pctx, flags, dev, 3020);
}
CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *, int, unsigned int flags, CUdevice dev) {
  return create_and_push(pctx, flags, dev, 3020);
}
CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *, unsigned int flags, CUdevice dev) {
  return create_and_push(pctx, flags, dev, 3020);
}
CUresult cuCtxDestroy(CUcontext ctx) { return destroy(ctx); }
CUresult cuCtxDestroy_v2(CUcontext ctx) { return destroy(ctx); }

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
  SIMGPU_CONTEXT(driver, context);
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  context->references++;
  *pctx = reinterpret_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  SIMGPU_DRIVER(driver);
  Context *context = valid_context(ctx);
  if (context == nullptr || context != top_context() || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  {
    DriverLock lock(driver->mutex);
    if (--context->references > 0) return CUDA_SUCCESS;
  }
  return destroy(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  Context *context = valid_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }

CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (t_thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = reinterpret_cast<CUcontext>(top_context());
  t_thread.depth--;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *pctx) { return cuCtxPopCurrent_v2(pctx); }

CUresult cuCtxSetCurrent(CUcontext ctx) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (ctx == nullptr) {
    if (t_thread.depth > 0) t_thread.depth--;
    return CUDA_SUCCESS;
  }
  Context *context = valid_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (t_thread.depth == 0) t_thread.depth = 1;
  t_thread.stack[t_thread.depth - 1] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = reinterpret_cast<CUcontext>(top_context());
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  if (device->broken()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (device->primary == nullptr) {
    CUresult result = create_context(driver, device, device->primary_flags, true, &device->primary);
    if (result != CUDA_SUCCESS) return result;
    device->primary->api_version = 3020;
  }
  device->primary_references++;
  *pctx = reinterpret_cast<CUcontext>(device->primary);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary != nullptr) drain_context(driver, device->primary);
  DriverLock lock(driver->mutex);
  return release_primary(driver, device, false);
}
CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return cuDevicePrimaryCtxRelease_v2(dev); }

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary != nullptr) drain_context(driver, device->primary);
  DriverLock lock(driver->mutex);
  return release_primary(driver, device, true);
}
CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & CU_CTX_SCHED_MASK) > CU_CTX_SCHED_BLOCKING_SYNC) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  device->primary_flags = flags;
  if (device->primary != nullptr) device->primary->flags = flags;
  return CUDA_SUCCESS;
}
// The first version of this call refused to change an active context.
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(dev);
  if (device != nullptr && device->primary != nullptr) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  *flags = device->primary != nullptr ? device->primary->flags : device->primary_flags;
  *active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
