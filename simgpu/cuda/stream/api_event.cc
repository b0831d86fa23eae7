// Event entry points.
#include "simgpu/cuda/graph/capture.h"
#include "simgpu/cuda/launch/prepare.h"
#include "simgpu/cuda/memory/pool.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

CUresult record(CUevent handle, CUstream stream_handle, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  Event *event = valid_event(handle);
  Stream *stream = find_stream(driver, context, stream_handle, per_thread);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context->device != stream->context->device && !event->imported) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (stream->capture != nullptr) return capture_event_record(driver, stream, event->state.get());
  record_event(stream, event->state);
  // Drivers need a tenth of the time where none is to be taken.
  const Device *device = stream->context->device;
  const bool timed = (event->flags & CU_EVENT_DISABLE_TIMING) == 0;
  spend(stream->context->device, timed ? device->facts().event_ns : device->facts().event_ns / 10);
  return CUDA_SUCCESS;
}

CUresult elapsed(float *milliseconds, CUevent start_handle, CUevent end_handle) {
  SIMGPU_DRIVER(driver);
  Event *start = valid_event(start_handle);
  Event *end = valid_event(end_handle);
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = forbid_unsafe_look(driver, end->context->device)) return result;
  uint64_t times[2];
  int i = 0;
  for (Event *event : {start, end}) {
    EventState &state = *event->state;
    const bool seen = has_happened(event->state.get());
    std::lock_guard<std::mutex> guard(state.mutex);
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0 || state.last.number == 0) return CUDA_ERROR_INVALID_HANDLE;
    if (!seen || state.completed < state.last.number) return CUDA_ERROR_NOT_READY;
    times[i++] = state.time_ns;
  }
  *milliseconds = static_cast<float>(static_cast<double>(static_cast<int64_t>(times[1] - times[0])) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent *out, unsigned int flags) {
  SIMGPU_CONTEXT(driver, context);
  unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (out == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  auto *event = new Event;
  event->context = context;
  event->flags = flags;
  DriverLock lock(driver->mutex);
  context->events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  SIMGPU_DRIVER(driver);
  Event *event = valid_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // It need not have happened: queued work that records it or waits for it holds its state.
  DriverLock lock(driver->mutex);
  event->context->events.erase(event);
  event->magic = 0;
  delete event;
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

CUresult cuEventRecord(CUevent event, CUstream stream) { return record(event, stream, false); }
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) { return record(event, stream, true); }
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  return flags <= CU_EVENT_RECORD_EXTERNAL ? record(event, stream, false) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
  return flags <= CU_EVENT_RECORD_EXTERNAL ? record(event, stream, true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventQuery(CUevent handle) {
  SIMGPU_DRIVER(driver);
  Event *event = valid_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    std::lock_guard<std::mutex> guard(event->state->mutex);
    if (event->state->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  }
  if (CUresult result = forbid_unsafe_look(driver, event->context->device)) return result;
  return has_happened(event->state.get()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  SIMGPU_DRIVER(driver);
  Event *event = valid_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<EventState> state = event->state;
  {
    std::lock_guard<std::mutex> guard(state->mutex);
    if (state->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  }
  if (CUresult result = forbid_unsafe_look(driver, event->context->device)) return result;
  synchronise_event(state.get());
  settle_pools(driver);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) { return elapsed(ms, start, end); }
CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end) { return elapsed(ms, start, end); }

}  // extern "C"
