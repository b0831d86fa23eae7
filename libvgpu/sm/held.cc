#include "held.h"

#include <algorithm>
#include <cmath>

#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "captures.h"
#include "driver/table.h"

namespace vgpu::sm {

// A wait whose length the device has yet to say.
struct HeldSpan {
  enum State : std::uint8_t {
    free,
    open,    // a thread waits
    closed,  // both events are recorded
  };

  State state;
  bool shared;            // another thread came to the stream meanwhile: what lies between the events is not all ours
  std::uint32_t context;  // the serial number of the context that the events belong to; 0: there are none yet
  CUevent from, to;
  std::uint64_t stream, order;
};

namespace {

// So many waits may be unread at a time. They are read when their context's next wait begins, which is when the device
// has nothing to do; so few are needed. A wait that finds none free stays in what the program measures.
constexpr unsigned kMostSpans = 64;
// So many waits are remembered. Waits without an event between them count as one, so that these are as many pairs of
// events that each had to wait. Two events with more waits between them are not corrected.
constexpr unsigned kMostKept = 1024;

struct KeptWait {
  std::uint64_t stream, order;
  double ms;
};

struct Held {
  Mutex mutex;
  // Counts the program's records and our waits.
  std::uint64_t order VGPU_GUARDED_BY(mutex);
  std::uint64_t last_record VGPU_GUARDED_BY(mutex);  // its place in the order, as for all of the following
  FlatMap recorded VGPU_GUARDED_BY(mutex);           // by event
  FlatMap stream_of VGPU_GUARDED_BY(mutex);          // by event
  std::uint64_t last_stream VGPU_GUARDED_BY(mutex);  // of the last wait
  std::uint64_t last_wait VGPU_GUARDED_BY(mutex);
  HeldSpan spans[kMostSpans] VGPU_GUARDED_BY(mutex);
  unsigned open VGPU_GUARDED_BY(mutex);  // of these
  KeptWait kept[kMostKept] VGPU_GUARDED_BY(mutex);
  unsigned next VGPU_GUARDED_BY(mutex);       // in `kept`
  std::uint64_t lost VGPU_GUARDED_BY(mutex);  // the latest wait that was overwritten
};
constinit WipedOnFork<Held> held;

std::uint64_t key_of(CUevent event) { return reinterpret_cast<std::uintptr_t>(event); }

// A stream by its handle; those that each context, or each thread, has under the same handle by these as well.
std::uint64_t key_of(CUstream stream) {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  if (handle > reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD)) return handle;
  runtime::Place place;
  const std::uint64_t context = runtime::current_place(&place) ? place.serial : 0;
  const bool per_thread = stream == CU_STREAM_PER_THREAD;
  const std::uint64_t thread = per_thread ? reinterpret_cast<std::uintptr_t>(this_thread()) : 0;
  return (FlatMap::hash(context << 1 | (per_thread ? 1 : 0)) ^ FlatMap::hash(thread)) | std::uint64_t{1} << 63;
}

void keep(Held &all, std::uint64_t stream, std::uint64_t order, double ms) VGPU_REQUIRES(all.mutex) {
  KeptWait &last = all.kept[(all.next + kMostKept - 1) % kMostKept];
  if (last.stream == stream && last.order == order) {
    last.ms += ms;
    return;
  }
  KeptWait &oldest = all.kept[all.next];
  all.lost = std::max(all.lost, oldest.order);
  oldest = {stream, order, ms};
  all.next = (all.next + 1) % kMostKept;
}

// Reads the waits that the device is done with, among those that are `wanted`: their context is there.
template <typename Wanted>
void read_spans(Held &all, Wanted wanted) VGPU_REQUIRES(all.mutex) {
  const RelaxedCapture relaxed;
  for (HeldSpan &span : all.spans) {
    if (span.state != HeldSpan::closed || !wanted(span)) continue;
    float ms = 0;
    const CUresult result = REAL(cuEventElapsedTime)(&ms, span.from, span.to);
    if (result == CUDA_ERROR_NOT_READY) continue;
    if (result == CUDA_SUCCESS) keep(all, span.stream, span.order, static_cast<double>(ms));
    span.state = HeldSpan::free;
  }
}

// A thread comes to a stream. True: another one waits to launch into it.
bool share_open_spans(Held &all, std::uint64_t stream) VGPU_REQUIRES(all.mutex) {
  bool found = false;
  for (unsigned i = 0; all.open != 0 && i < kMostSpans; ++i) {
    HeldSpan &span = all.spans[i];
    if (span.state != HeldSpan::open || span.stream != stream) continue;
    span.shared = found = true;
  }
  return found;
}

// One that has events in this context, else one that has none, else one of another context, whose two events are lost.
HeldSpan *take_span(Held &all, std::uint32_t context, std::uint64_t stream) VGPU_REQUIRES(all.mutex) {
  HeldSpan *best = nullptr;
  for (HeldSpan &span : all.spans) {
    if (span.state != HeldSpan::free) continue;
    if (best == nullptr || span.context == context || (span.context == 0 && best->context != context)) best = &span;
    if (span.context == context) break;
  }
  if (best == nullptr) return nullptr;
  best->shared = share_open_spans(all, stream);
  best->state = HeldSpan::open;
  best->stream = stream;
  ++all.open;
  return best;
}

bool make_events(HeldSpan &span, std::uint32_t context) {
  if (span.context == context) return true;
  span.context = 0;
  if (REAL(cuEventCreate)(&span.from, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
  if (REAL(cuEventCreate)(&span.to, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    REAL(cuEventDestroy_v2)(span.from);
    return false;
  }
  span.context = context;
  return true;
}

void close(Held &all, HeldSpan &span, bool recorded) VGPU_REQUIRES(all.mutex) {
  span.state = recorded && !span.shared ? HeldSpan::closed : HeldSpan::free;
  --all.open;
}

}  // namespace

void Hold::begin(const runtime::Place &place, CUstream stream) {
  if (tried_) return;
  tried_ = true;
  Held *all = held.get();
  if (all == nullptr || place.serial == 0 || !takes_events(stream)) return;
  const std::uint64_t key = key_of(stream);
  {
    ScopedLock lock(all->mutex);
    if (all->last_record == 0) return;  // it times nothing
    read_spans(*all, [&](const HeldSpan &span) { return span.context == place.serial; });
    span_ = take_span(*all, place.serial, key);
  }
  if (span_ == nullptr) return;
  // Not under the mutex: a driver whose queue is full keeps who records, and nobody may have to wait for that here.
  const RelaxedCapture relaxed;
  if (make_events(*span_, place.serial) && REAL(cuEventRecord)(span_->from, stream) == CUDA_SUCCESS) return;
  ScopedLock lock(all->mutex);
  close(*all, *span_, false);
  span_ = nullptr;
}

void Hold::end(CUstream stream) {
  if (span_ == nullptr) return;
  Held *all = held.get();
  bool recorded;
  {
    const RelaxedCapture relaxed;
    recorded = takes_events(stream) && REAL(cuEventRecord)(span_->to, stream) == CUDA_SUCCESS;
  }
  ScopedLock lock(all->mutex);
  const bool joins = all->last_stream == span_->stream && all->last_wait > all->last_record;
  if (!joins) all->last_wait = ++all->order;
  all->last_stream = span_->stream;
  span_->order = all->last_wait;
  close(*all, *span_, recorded);
  span_ = nullptr;
}

void note_record(CUevent event, CUstream stream) {
  // The event is part of a graph now, and happens when that is launched.
  if (is_recording(stream)) return forget_event(event);
  Held *all = held.get();
  if (all == nullptr) return;
  const std::uint64_t key = key_of(stream);
  ScopedLock lock(all->mutex);
  share_open_spans(*all, key);
  std::uint64_t *place = all->recorded.insert(key_of(event));
  if (place == nullptr) return;
  *place = all->last_record = ++all->order;
  // Without memory for it the event has stream 0, which is none's.
  if (std::uint64_t *of = all->stream_of.insert(key_of(event))) *of = key;
}

void forget_event(CUevent event) {
  Held *all = held.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  for (FlatMap *map : {&all->recorded, &all->stream_of}) {
    if (std::uint64_t *value = map->find(key_of(event))) map->erase(value);
  }
}

void forget_events_of(CUstream stream) {
  Held *all = held.get();
  if (all == nullptr) return;
  const std::uint64_t key = key_of(stream);
  ScopedLock lock(all->mutex);
  all->stream_of.erase_if([&](std::uint64_t, std::uint64_t of) { return of == key; });
}

void forget_held_of_closed_contexts() {
  Held *all = held.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  for (HeldSpan &span : all->spans) {
    if (span.state == HeldSpan::open || span.context == 0 || runtime::context_is_open(span.context)) continue;
    span = {};
  }
  // Its events went with it, and their handles may become others'.
  all->stream_of.erase_if([](std::uint64_t, std::uint64_t) { return true; });
  all->recorded.erase_if([](std::uint64_t, std::uint64_t) { return true; });
}

float without_held(CUevent start, CUevent end, float elapsed_ms) {
  Held *all = held.get();
  if (all == nullptr) return elapsed_ms;
  ScopedLock lock(all->mutex);
  std::uint64_t place[2], stream[2];
  const CUevent events[2] = {start, end};
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t *of = all->stream_of.find(key_of(events[i]));
    const std::uint64_t *recorded = all->recorded.find(key_of(events[i]));
    if (of == nullptr || recorded == nullptr || *of == 0) return elapsed_ms;
    stream[i] = *of;
    place[i] = *recorded;
  }
  const std::uint64_t from = std::min(place[0], place[1]), to = std::max(place[0], place[1]);
  if (stream[0] != stream[1] || from < all->lost) return elapsed_ms;
  // Both events have happened, and so has all that was recorded between them in their stream.
  const auto between = [&](const auto &wait) {
    return wait.stream == stream[0] && wait.order > from && wait.order < to;
  };
  read_spans(*all, between);
  double held_ms = 0;
  for (const KeptWait &wait : all->kept) held_ms += between(wait) ? wait.ms : 0;
  // More than there is: one of the events was recorded again in a way that we do not see, such as by a graph.
  const double length = std::fabs(static_cast<double>(elapsed_ms));
  if (held_ms > length) return elapsed_ms;
  return std::copysign(static_cast<float>(length - held_ms), elapsed_ms);
}

}  // namespace vgpu::sm
