// Events: what lies between two of them is the program's work, and not the limiter's waiting.
#include "driver/flags.h"
#include "driver/table.h"
#include "sm/held.h"

using namespace vgpu;
using namespace vgpu::driver;

namespace {

CUresult recorded(CUresult result, CUevent event, CUstream stream) {
  if (result == CUDA_SUCCESS && launches_are_metered()) sm::note_record(event, stream);
  return result;
}

CUresult corrected(CUresult result, float *ms, CUevent start, CUevent end) {
  if (result == CUDA_SUCCESS && launches_are_metered()) *ms = sm::without_held(start, end, *ms);
  return result;
}

// Before the driver destroys it, because its handle can be another event's before the driver's call returns.
template <typename Call>
CUresult destroy(CUevent event, Call call) {
  if (launches_are_metered()) sm::forget_event(event);
  return call();
}

}  // namespace

extern "C" {

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return recorded(REAL(cuEventRecord)(event, stream), event, stream);
}
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return recorded(REAL(cuEventRecord_ptsz)(event, stream), event, per_thread(stream));
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  return recorded(REAL(cuEventRecordWithFlags)(event, stream, flags), event, stream);
}
CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
  return recorded(REAL(cuEventRecordWithFlags_ptsz)(event, stream, flags), event, per_thread(stream));
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
  return corrected(REAL(cuEventElapsedTime)(ms, start, end), ms, start, end);
}
CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end) {
  return corrected(REAL(cuEventElapsedTime_v2)(ms, start, end), ms, start, end);
}

CUresult cuEventDestroy(CUevent event) {
  return destroy(event, [&] { return REAL(cuEventDestroy)(event); });
}
CUresult cuEventDestroy_v2(CUevent event) {
  return destroy(event, [&] { return REAL(cuEventDestroy_v2)(event); });
}

}  // extern "C"
