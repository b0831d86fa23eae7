// Streams and events. Work runs at the moment it is submitted, in the caller's thread, as long as nothing before it in its
// stream is waiting; host functions and what follows them run on a thread of the stream. This is the seam for a model of
// time: everything a client submits goes through submit(), and everything it waits for goes through drain() and Event.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>

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
  std::set<Stream *> joined;
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

struct Event {
  uint32_t magic = kEventMagic;
  Context *context = nullptr;
  unsigned flags = 0;
  bool imported = false;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;             // number of records submitted
  uint64_t completed = 0;            // number of records that have been reached
  uint64_t time_ns = 0;              // when the last one was
  std::shared_ptr<Capture> capture;  // recorded in a capture, not for real
  std::vector<GraphNode *> capture_tail;
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
void record_event(Stream *stream, Event *event);
void wait_for_event(Stream *stream, Event *event);

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
