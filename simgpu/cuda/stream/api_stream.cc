// Stream entry points: creation, waiting, callbacks and attributes.
#include "simgpu/cuda/graph/capture.h"
#include "simgpu/cuda/memory/pool.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

CUstream thread_form(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

// What most stream calls start with.
#define STREAM(driver, context, stream, handle)                 \
  SIMGPU_CONTEXT(driver, context);                              \
  Stream *stream = find_stream(driver, context, handle, false); \
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE

}  // namespace

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority) {
  SIMGPU_CONTEXT(driver, context);
  if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  *out = reinterpret_cast<CUstream>(make_stream(driver, context, flags, std::max(-5, std::min(0, priority))));
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream *out, unsigned int flags) { return cuStreamCreateWithPriority(out, flags, 0); }

CUresult cuStreamDestroy_v2(CUstream handle) {
  SIMGPU_CONTEXT(driver, context);
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_HANDLE;
  Stream *stream = find_stream(driver, context, handle, false);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  close_stream(stream);
  DriverLock lock(driver->mutex);
  leave_capture(driver, stream);
  stream->context->streams.erase(stream);
  stream->magic = 0;
  delete stream;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

CUresult cuStreamSynchronize(CUstream handle) {
  STREAM(driver, context, stream, handle);
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (stream->capture != nullptr) return forbid_in_capture(driver, stream);
  if (CUresult result = forbid_unsafe_look(driver, stream->context->device)) return result;
  if (stream->legacy) order_with_default_stream(stream);
  drain(stream);
  settle_pools(driver);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize_ptsz(CUstream handle) { return cuStreamSynchronize(thread_form(handle)); }

CUresult cuStreamQuery(CUstream handle) {
  STREAM(driver, context, stream, handle);
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (stream->capture != nullptr) return forbid_in_capture(driver, stream);
  if (CUresult result = forbid_unsafe_look(driver, stream->context->device)) return result;
  if (stream->legacy) order_with_default_stream(stream);
  return looks_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamQuery_ptsz(CUstream handle) { return cuStreamQuery(thread_form(handle)); }

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  STREAM(driver, context, stream, handle);
  Event *event = valid_event(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (event->state->capture != nullptr || stream->capture != nullptr)
    return capture_event_wait(driver, stream, event->state.get());
  wait_for_event(stream, event->state);
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent_ptsz(CUstream handle, CUevent event, unsigned int flags) {
  return cuStreamWaitEvent(thread_form(handle), event, flags);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data) {
  STREAM(driver, context, stream, handle);
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (stream->capture != nullptr) {
    auto node = std::make_unique<GraphNode>();
    node->type = CU_GRAPH_NODE_TYPE_HOST;
    node->host = {fn, data};
    return capture_node(driver, stream, std::move(node));
  }
  order_with_default_stream(stream);
  enqueue(stream, ItemKind::kHold, [fn, data] { fn(data); });
  return CUDA_SUCCESS;
}
CUresult cuLaunchHostFunc_ptsz(CUstream handle, CUhostFn fn, void *data) {
  return cuLaunchHostFunc(thread_form(handle), fn, data);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned int flags) {
  STREAM(driver, context, stream, handle);
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (stream->capture != nullptr) return forbid_in_capture(driver, stream);
  order_with_default_stream(stream);
  enqueue(stream, ItemKind::kHold, [handle, callback, data] { callback(handle, CUDA_SUCCESS, data); });
  return CUDA_SUCCESS;
}
CUresult cuStreamAddCallback_ptsz(CUstream handle, CUstreamCallback callback, void *data, unsigned int flags) {
  return cuStreamAddCallback(thread_form(handle), callback, data, flags);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
  STREAM(driver, context, stream, handle);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetFlags_ptsz(CUstream handle, unsigned int *flags) {
  return cuStreamGetFlags(thread_form(handle), flags);
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
  STREAM(driver, context, stream, handle);
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetPriority_ptsz(CUstream handle, int *priority) {
  return cuStreamGetPriority(thread_form(handle), priority);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
  STREAM(driver, context, stream, handle);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetId_ptsz(CUstream handle, unsigned long long *id) { return cuStreamGetId(thread_form(handle), id); }

CUresult cuStreamGetCtx(CUstream handle, CUcontext *out) {
  STREAM(driver, context, stream, handle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx_ptsz(CUstream handle, CUcontext *out) { return cuStreamGetCtx(thread_form(handle), out); }
CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *out, CUgreenCtx *green) {
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(handle, out);
}
CUresult cuStreamGetCtx_v2_ptsz(CUstream handle, CUcontext *out, CUgreenCtx *green) {
  return cuStreamGetCtx_v2(thread_form(handle), out, green);
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device) {
  STREAM(driver, context, stream, handle);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context->device->ordinal;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetDevice_ptsz(CUstream handle, CUdevice *device) {
  return cuStreamGetDevice(thread_form(handle), device);
}

}  // extern "C"
