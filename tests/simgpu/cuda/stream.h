// Streams and events. Work runs at the moment it is submitted, in the caller's thread, as long as nothing before it in its
// stream is waiting; host functions and what follows them run on a thread of the stream. This is the seam for a model of
// time: everything a client submits goes through submit(), and everything it waits for goes through drain() and Event.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "cuda/core.h"

namespace simgpu {

struct Graph;
struct GraphNode;

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

struct Stream {
  uint32_t magic = kStreamMagic;
  Context *context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  bool legacy = false;
  std::shared_ptr<Capture> capture;       // guarded by the driver's lock
  std::vector<GraphNode *> capture_tail;  // what the next captured node depends on

  // Guarded by `mutex`. `pending` counts what was queued and has not ended; it may be read without the lock.
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::atomic<int> pending{0};
  bool worker_running = false;
  bool closing = false;
};

// How far an event is. Queued work and graph nodes share it, so that the event itself can be destroyed at any time.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;             // number of records submitted
  uint64_t completed = 0;            // number of records that have been reached
  uint64_t time_ns = 0;              // when the last one was
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

void enqueue(Stream *stream, std::function<void()> work);
void drain(Stream *stream);
void drain_context(Driver *driver, Context *context);
void close_stream(Stream *stream);
Stream *make_stream(Driver *driver, Context *context, unsigned flags, int priority);
Event *valid_event(CUevent handle);
void record_event(Stream *stream, const std::shared_ptr<EventState> &event);
void wait_for_event(Stream *stream, const std::shared_ptr<EventState> &event);

// A call that a capture does not allow spoils the capture and fails. Without a capture both cost one load.
CUresult forbid_unsafe_call_slowly(Driver *driver);
CUresult forbid_implicit_order_slowly(Driver *driver, Stream *stream);
// For calls that may order themselves with captured work: allocating, freeing, synchronising the context.
inline CUresult forbid_unsafe_call(Driver *driver) {
  return __builtin_expect(Capture::count.load(std::memory_order_acquire) != 0, 0) ? forbid_unsafe_call_slowly(driver)
                                                                                  : CUDA_SUCCESS;
}
// For work on the default stream, which would have to wait for the streams that are being captured.
inline CUresult forbid_implicit_order(Driver *driver, Stream *stream) {
  return __builtin_expect(Capture::count.load(std::memory_order_acquire) != 0, 0) && stream->legacy
             ? forbid_implicit_order_slowly(driver, stream)
             : CUDA_SUCCESS;
}

// The default stream and the others that did not opt out wait for each other.
void order_with_default_stream(Stream *stream);

template <typename Work>
void submit(Stream *stream, Work &&work) {
  if (__builtin_expect(stream->context->busy_streams.load(std::memory_order_acquire) != 0, 0)) {
    order_with_default_stream(stream);
    if (stream->pending.load(std::memory_order_acquire) != 0) {
      enqueue(stream, std::forward<Work>(work));
      return;
    }
  }
  work();
}

}  // namespace simgpu
