// Streams and events. A kernel goes into the device's queue at once, where it takes its time (node/engine.h), whatever else
// of its stream has not happened yet: kernels change nothing. Everything else has an effect here, in the client. It happens
// in the caller's thread if nothing before it in its stream is left to do; else it waits in the stream's own queue, whose
// thread does it when the kernels before it have ended. What the device cannot foresee, such as a host function, holds back
// the kernels after it too.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "simgpu/cuda/core.h"

namespace simgpu {

struct Graph;
struct GraphNode;

inline void count_launch(Context *context) { context->device->books->launches.fetch_add(1, std::memory_order_relaxed); }

constexpr uint32_t kStreamMagic = 0x53545231;
constexpr uint32_t kEventMagic = 0x45565431;

// What is being recorded on a stream between BeginCapture and EndCapture.
struct Capture {
  Graph *graph = nullptr;
  Stream *origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t id = 0;
  bool invalid = false;
  bool owns_graph = true;
  std::thread::id thread = std::this_thread::get_id();  // which began it
  std::set<Stream *> joined;

  // How many there are, ended ones that events still refer to included: calls need not look for captures at 0.
  static inline std::atomic<int> count{0};
  Capture() { count++; }
  ~Capture() { count--; }
  Capture(const Capture &) = delete;
  Capture &operator=(const Capture &) = delete;
};

// How far a stream's own queue is. Those who wait for it share it, so that the stream itself can go.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t issued = 0;
  uint64_t completed = 0;
  uint64_t held_until_ns = 0;  // when the last item that held kernels back ended, by the device's clock
  uint64_t held_kernel = 0;    // the last kernel that had been held back
};

enum class ItemKind {
  kEffect,      // kernels need not wait for it
  kHold,        // holds back the kernels behind it
  kHeldKernel,  // itself held back, it goes into the device's queue without waiting for the kernels there
};

struct Stream {
  uint32_t magic = kStreamMagic;
  Context *context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  bool legacy = false;
  std::map<CUstreamAttrID, CUstreamAttrValue> attributes;  // those that were set; guarded by the driver's lock
  std::shared_ptr<Capture> capture;                        // guarded by the driver's lock
  std::vector<GraphNode *> capture_tail;                   // what the next captured node depends on

  std::atomic<uint64_t> tail{0};  // the last kernel that this stream's work comes after; see tail_of()

  // The stream's own queue, guarded by progress->mutex; the counts may be read without it.
  struct Item {
    uint64_t after;  // a kernel
    ItemKind kind;
    std::function<void()> work;
    std::shared_ptr<EventState> event = nullptr;  // instead of work: a record of it
    EventRecord record = {};
  };
  const std::shared_ptr<Progress> progress = std::make_shared<Progress>();
  std::deque<Item> queue;
  std::atomic<int> pending{0};  // items that have not ended
  std::atomic<int> holding{0};  // those of them that kernels have to wait for here
  bool worker_running = false;
  bool closing = false;
  // The default stream and the others wait for each other: up to which item of the default stream this one does already,
  // and up to which of this one the default stream does.
  std::atomic<uint64_t> waits_for_default{0};
  std::atomic<uint64_t> awaited_by_default{0};
};

// How far an event is. Queued work and graph nodes share it, so that the event itself can be destroyed at any time.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  EventRecord last;
  uint64_t completed = 0;            // the last record that has been reached
  uint64_t time_ns = 0;              // when it was, by the device's clock
  std::shared_ptr<Capture> capture;  // recorded in a capture, not for real
  std::vector<GraphNode *> capture_tail;
};

struct Event {
  uint32_t magic = kEventMagic;
  Context *context = nullptr;
  unsigned flags = 0;
  bool imported = false;
  const std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

// The stream a handle means; `per_thread` is how the _ptsz entry points read a null handle. Null when it is not a stream.
Stream *find_stream(Driver *driver, Context *context, CUstream handle, bool per_thread);

template <typename Work>
void submit(Stream *stream, Work &&work);

// Puts work into the stream's own queue.
void enqueue(Stream *stream, ItemKind kind, std::function<void()> work);
// Counts a kernel as launched, and has the device run it if it takes time. Cheap for one that takes none.
struct KernelWork {
  uint64_t duration_ns = 0;
  uint64_t sms = 0;
};
inline void launch_kernel(Stream *stream, KernelWork work);
void launch_kernel_slowly(Stream *stream, KernelWork work);
// Whether all that was submitted has happened.
bool is_idle(Stream *stream);
void drain(Stream *stream);
void drain_context_slowly(Driver *driver, Context *context);
inline void drain_context(Driver *driver, Context *context) {
  if (__builtin_expect(context->busy_streams.load(std::memory_order_acquire) != 0 ||
                           !context->device->engine.ended(context->tail.load(std::memory_order_acquire)) ||
                           context->device->facts().event_lag_ns != 0,
                       0))
    drain_context_slowly(driver, context);
}
void close_stream(Stream *stream);
Stream *make_stream(Driver *driver, Context *context, unsigned flags, int priority);
Event *valid_event(CUevent handle);
void record_event(Stream *stream, const std::shared_ptr<EventState> &event);
void wait_for_event(Stream *stream, const std::shared_ptr<EventState> &event);
// Both are about the event's last record, and look at the device's clock.
bool has_happened(EventState *event);
void synchronise_event(EventState *event);

// A call that a capture does not allow spoils the capture and fails. Without a capture both cost one load.
CUresult forbid_unsafe_call_slowly(Driver *driver);
CUresult forbid_implicit_order_slowly(Driver *driver, Stream *stream);
// For calls that may order themselves with captured work: allocating, freeing, synchronising the context.
inline CUresult forbid_unsafe_call(Driver *driver) {
  return __builtin_expect(Capture::count.load(std::memory_order_acquire) != 0, 0) ? forbid_unsafe_call_slowly(driver)
                                                                                  : CUDA_SUCCESS;
}
// For looking at work, or waiting for it, of a stream or an event: on a strict device that is unsafe as well.
inline CUresult forbid_unsafe_look(Driver *driver, const Device *device) {
  return device->facts().capture_strict != 0 ? forbid_unsafe_call(driver) : CUDA_SUCCESS;
}
// A stream that goes takes its capture with it. Expects the driver's lock.
void leave_capture(Driver *driver, Stream *stream);
// For work on the default stream, which would have to wait for the streams that are being captured.
inline CUresult forbid_implicit_order(Driver *driver, Stream *stream) {
  return __builtin_expect(Capture::count.load(std::memory_order_acquire) != 0, 0) && stream->legacy
             ? forbid_implicit_order_slowly(driver, stream)
             : CUDA_SUCCESS;
}

// The default stream and the others that did not opt out wait for each other: puts into the stream's queue what it has to
// wait for in theirs.
void order_with_default_stream_slowly(Stream *stream);
inline void order_with_default_stream(Stream *stream) {
  if (__builtin_expect(stream->context->busy_streams.load(std::memory_order_acquire) != 0, 0))
    order_with_default_stream_slowly(stream);
}

// The kernel that what is submitted now comes after.
inline uint64_t tail_of(const Stream *stream) {
  if (stream->legacy) return stream->context->blocking_tail.load(std::memory_order_acquire);
  uint64_t own = stream->tail.load(std::memory_order_acquire);
  if ((stream->flags & CU_STREAM_NON_BLOCKING) != 0) return own;
  return std::max(own, stream->context->legacy_stream->tail.load(std::memory_order_acquire));
}

inline void launch_kernel(Stream *stream, KernelWork work) {
  if (__builtin_expect(work.duration_ns == 0 && stream->context->busy_streams.load(std::memory_order_acquire) == 0, 1))
    count_launch(stream->context);
  else
    launch_kernel_slowly(stream, work);
}

template <typename Work>
void submit(Stream *stream, Work &&work) {
  order_with_default_stream(stream);
  if (__builtin_expect(is_idle(stream), 1))
    work();
  else
    enqueue(stream, ItemKind::kEffect, std::forward<Work>(work));
}

inline bool is_idle(Stream *stream) {
  return stream->pending.load(std::memory_order_acquire) == 0 && stream->context->device->engine.ended(tail_of(stream));
}

// The same as far as the process can see: it learns of the end of kernels a little later.
inline bool looks_idle(Stream *stream) {
  const Engine &engine = stream->context->device->engine;
  return is_idle(stream) &&
         (stream->context->device->facts().event_lag_ns == 0 || engine.now_ns() >= engine.visible_at(tail_of(stream)));
}

}  // namespace simgpu
