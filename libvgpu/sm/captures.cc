#include "captures.h"

#include "base/mutex.h"
#include "base/wiped.h"
#include "driver/table.h"
#include "runtime/contexts.h"

namespace vgpu::sm {

constinit std::atomic<std::uint32_t> captures{0};

namespace {

using std::memory_order_relaxed;

[[gnu::tls_model("initial-exec")]] thread_local constinit char thread_mark = 0;

struct CapturedStream {
  CUstream stream;  // null: free
  const void *thread;
  std::uint32_t context;  // the serial number of the stream's context; 0: unknown

  bool is(CUstream other) const {
    return stream == other && (stream != CU_STREAM_PER_THREAD || thread == this_thread());
  }
};

// Captures beyond these are only counted, so that one whose stream is destroyed counts until another one ends. Programs
// capture one stream at a time, or one for each of their threads.
constexpr unsigned kMostKnown = 64;

struct Captures {
  Mutex mutex;
  unsigned unknown VGPU_GUARDED_BY(mutex);
  CapturedStream known[kMostKnown] VGPU_GUARDED_BY(mutex);
};
constinit WipedOnFork<Captures> all_captures;

CapturedStream *find(Captures &all, CUstream stream) VGPU_REQUIRES(all.mutex) {
  for (CapturedStream &entry : all.known) {
    if (entry.is(stream)) return &entry;
  }
  return nullptr;
}

void release(CapturedStream &entry) {
  entry = {};
  captures.fetch_sub(1, memory_order_relaxed);
}

std::uint32_t context_of(CUstream stream) {
  CUcontext context = nullptr;
  runtime::Place place;
  if (REAL(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS) return 0;
  return runtime::known_place(context, &place) ? place.serial : 0;
}

}  // namespace

const void *this_thread() { return &thread_mark; }

bool note_capture(CUstream stream) {
  Captures *all = all_captures.get();
  // The legacy stream cannot be captured, which the driver will say.
  if (all == nullptr || stream == nullptr) return false;
  const std::uint32_t context = context_of(stream);
  ScopedLock lock(all->mutex);
  if (find(*all, stream) != nullptr) return false;
  captures.fetch_add(1, memory_order_relaxed);
  for (CapturedStream &entry : all->known) {
    if (entry.stream != nullptr) continue;
    entry = {stream, this_thread(), context};
    return true;
  }
  ++all->unknown;
  return true;
}

bool forget_capture(CUstream stream) {
  if (captures.load(memory_order_relaxed) == 0 || stream == nullptr) return false;
  Captures *all = all_captures.get();
  if (all == nullptr) return false;
  ScopedLock lock(all->mutex);
  if (CapturedStream *entry = find(*all, stream)) {
    release(*entry);
    return true;
  }
  if (all->unknown == 0) return false;
  --all->unknown;
  captures.fetch_sub(1, memory_order_relaxed);
  return true;
}

void forget_captures_of_closed_contexts() {
  if (captures.load(memory_order_relaxed) == 0) return;
  Captures *all = all_captures.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  for (CapturedStream &entry : all->known) {
    if (entry.context != 0 && !runtime::context_is_open(entry.context)) release(entry);
  }
}

bool is_recording(CUstream stream) {
  if (captures.load(memory_order_relaxed) == 0) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // The driver refuses to say for the legacy stream while another is captured; the legacy stream cannot be.
  return REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

RelaxedCapture::RelaxedCapture() : exchanged_(REAL(cuThreadExchangeStreamCaptureMode)(&mode_) == CUDA_SUCCESS) {}
RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) REAL(cuThreadExchangeStreamCaptureMode)(&mode_);
}

}  // namespace vgpu::sm
