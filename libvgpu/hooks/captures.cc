// Captures, and streams that go: while a stream is captured, launches into it are recorded and not run, which the limiter
// has to know before the driver begins.
#include "sm/captures.h"
#include "driver/flags.h"
#include "driver/table.h"
#include "sm/held.h"
#include "sm/marks.h"

using namespace vgpu;
using namespace vgpu::driver;

namespace {

template <typename Call>
CUresult begin(CUstream stream, Call call) {
  const bool noted = launches_are_metered() && sm::note_capture(stream);
  const CUresult result = call();
  if (noted && result != CUDA_SUCCESS) sm::forget_capture(stream);
  return result;
}

template <typename Call>
CUresult end(CUstream stream, Call call) {
  const CUresult result = call();
  // Whatever it returns, the capture is over, unless it was not this thread's or this stream's to end.
  const bool goes_on = result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || result == CUDA_ERROR_ILLEGAL_STATE ||
                       result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (!goes_on && launches_are_metered()) sm::forget_capture(stream);
  return result;
}

// Before the driver destroys it, because its handle can be another stream's before the driver's call returns.
template <typename Call>
CUresult destroy(CUstream stream, Call call) {
  const bool metered = launches_are_metered();
  const bool captured = metered && sm::is_recording(stream) && sm::forget_capture(stream);
  if (metered) sm::forget_events_of(stream);
  if (metered) sm::forget_stream(stream);
  const CUresult result = call();
  if (captured && result != CUDA_SUCCESS) sm::note_capture(stream);
  return result;
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream) {
  return begin(stream, [&] { return REAL(cuStreamBeginCapture)(stream); });
}
CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return begin(per_thread(stream), [&] { return REAL(cuStreamBeginCapture_ptsz)(stream); });
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, [&] { return REAL(cuStreamBeginCapture_v2)(stream, mode); });
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begin(per_thread(stream), [&] { return REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode); });
}
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
  return begin(stream,
               [&] { return REAL(cuStreamBeginCaptureToGraph)(stream, graph, dependencies, edges, count, mode); });
}
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
  return begin(per_thread(stream),
               [&] { return REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, dependencies, edges, count, mode); });
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  return end(stream, [&] { return REAL(cuStreamEndCapture)(stream, graph); });
}
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
  return end(per_thread(stream), [&] { return REAL(cuStreamEndCapture_ptsz)(stream, graph); });
}

CUresult cuStreamDestroy(CUstream stream) {
  return destroy(stream, [&] { return REAL(cuStreamDestroy)(stream); });
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  return destroy(stream, [&] { return REAL(cuStreamDestroy_v2)(stream); });
}

}  // extern "C"
