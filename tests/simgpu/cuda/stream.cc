#include "cuda/stream.h"

#include <pthread.h>
#include <signal.h>

#include <thread>

namespace simgpu {
namespace {

void run_queue(Stream *stream) {
  std::unique_lock<std::mutex> lock(stream->mutex);
  for (;;) {
    stream->changed.wait(lock, [stream] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty()) break;
    std::function<void()> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    if (stream->pending.fetch_sub(1, std::memory_order_release) == 1)
      stream->context->busy_streams.fetch_sub(1, std::memory_order_release);
    stream->changed.notify_all();
  }
  stream->worker_running = false;
  stream->changed.notify_all();
}

}  // namespace

void enqueue(Stream *stream, std::function<void()> work) {
  std::lock_guard<std::mutex> guard(stream->mutex);
  stream->queue.push_back(std::move(work));
  if (stream->pending.fetch_add(1, std::memory_order_release) == 0)
    stream->context->busy_streams.fetch_add(1, std::memory_order_release);
  if (!stream->worker_running) {
    stream->worker_running = true;
    // Clients' signals are theirs to handle, not for a thread they do not know.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    std::thread(run_queue, stream).detach();
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }
  stream->changed.notify_all();
}

void drain(Stream *stream) {
  if (stream->pending.load(std::memory_order_acquire) == 0) return;
  std::unique_lock<std::mutex> lock(stream->mutex);
  stream->changed.wait(lock, [stream] { return stream->pending.load(std::memory_order_acquire) == 0; });
}

void drain_context(Driver *driver, Context *context) {
  if (context->busy_streams.load(std::memory_order_acquire) == 0) return;
  std::vector<Stream *> streams;
  {
    DriverLock lock(driver->mutex);
    streams.assign(context->streams.begin(), context->streams.end());
  }
  for (Stream *stream : streams) drain(stream);
}

void close_stream(Stream *stream) {
  drain(stream);
  std::unique_lock<std::mutex> lock(stream->mutex);
  stream->closing = true;
  stream->changed.notify_all();
  stream->changed.wait(lock, [stream] { return !stream->worker_running; });
}

void order_with_default_stream(Stream *stream) {
  if ((stream->flags & CU_STREAM_NON_BLOCKING) != 0) return;
  Driver *driver = g_driver.load(std::memory_order_acquire);
  if (!stream->legacy) {
    drain(stream->context->legacy_stream);
    return;
  }
  std::vector<Stream *> streams;
  {
    DriverLock lock(driver->mutex);
    for (Stream *other : stream->context->streams)
      if (other != stream && (other->flags & CU_STREAM_NON_BLOCKING) == 0) streams.push_back(other);
  }
  for (Stream *other : streams) drain(other);
}

Stream *make_stream(Driver *driver, Context *context, unsigned flags, int priority) {
  auto *stream = new Stream;
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = driver->next_id++;
  context->streams.insert(stream);
  return stream;
}

Stream *find_stream(Driver *driver, Context *context, CUstream handle, bool per_thread) {
  if (handle == nullptr) handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY) return context->legacy_stream;
  if (handle == CU_STREAM_PER_THREAD) {
    static thread_local std::map<uint64_t, Stream *> own;  // by context id, which is never used twice
    Stream *&stream = own[context->id];
    if (stream == nullptr) {
      DriverLock lock(driver->mutex);
      stream = make_stream(driver, context, CU_STREAM_DEFAULT, 0);
    }
    return stream;
  }
  auto *stream = reinterpret_cast<Stream *>(handle);
  return stream->magic == kStreamMagic ? stream : nullptr;
}

Event *valid_event(CUevent handle) {
  auto *event = reinterpret_cast<Event *>(handle);
  return event != nullptr && event->magic == kEventMagic ? event : nullptr;
}

void record_event(Stream *stream, const std::shared_ptr<EventState> &event) {
  {
    std::lock_guard<std::mutex> guard(event->mutex);
    event->recorded++;
    event->capture = nullptr;
  }
  submit(stream, [event] {
    std::lock_guard<std::mutex> guard(event->mutex);
    event->completed++;
    event->time_ns = monotonic_ns();
    event->changed.notify_all();
  });
}

void wait_for_event(Stream *stream, const std::shared_ptr<EventState> &event) {
  uint64_t target;
  {
    std::lock_guard<std::mutex> guard(event->mutex);
    target = event->recorded;
    if (event->completed >= target) return;
  }
  order_with_default_stream(stream);
  enqueue(stream, [event, target] {
    std::unique_lock<std::mutex> lock(event->mutex);
    event->changed.wait(lock, [&event, target] { return event->completed >= target; });
  });
}

}  // namespace simgpu
