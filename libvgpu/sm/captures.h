// Streams that are being captured: a launch there is recorded and not run, and what a thread may ask of the driver
// meanwhile is restricted, so that a careless question spoils the program's capture.
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/cuda_api.h"

namespace vgpu::sm {

// How many streams of this process are being captured, at most.
extern constinit std::atomic<std::uint32_t> captures;

// Tells threads apart: the handle of the per-thread stream is the same in all of them.
const void *this_thread();

// Before the driver begins a capture, so that it has none that is not counted. False: the stream was counted already.
bool note_capture(CUstream stream);
// The driver did not begin it, or ended it. False: none was counted.
bool forget_capture(CUstream stream);
// After a context went, whose streams went with it.
void forget_captures_of_closed_contexts();

bool is_recording(CUstream stream);

// Whether our own events may be recorded in a stream. The legacy stream waits for those that are captured, so that any
// use of it spoils their captures.
inline bool takes_events(CUstream stream) {
  return captures.load(std::memory_order_relaxed) == 0 || (stream != nullptr && stream != CU_STREAM_LEGACY);
}

// Around our own calls about events: no capture minds them, whichever thread's it is. Not only while there are captures,
// because another thread may begin one at any moment.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged_;
};

}  // namespace vgpu::sm
