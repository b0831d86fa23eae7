#include "simgpu/cuda/stream/stream.h"

#include <pthread.h>
#include <signal.h>

#include <thread>

namespace simgpu {
namespace {

void complete_record(EventState *event, uint64_t record, uint64_t time_ns);

// Expects the progress's mutex.
void count_ended(Stream *stream, ItemKind kind) {
  Progress &progress = *stream->progress;
  progress.completed++;
  if (kind != ItemKind::kEffect) {
    progress.held_until_ns = stream->context->device->engine.now_ns();
    stream->holding.fetch_sub(1, std::memory_order_release);
  }
  if (stream->pending.fetch_sub(1, std::memory_order_release) == 1)
    stream->context->busy_streams.fetch_sub(1, std::memory_order_release);
}

// The same for a record: whoever sees that the event has happened sees a stream that is beyond it, and the other way round.
void count_recorded(Stream *stream, const Stream::Item &item) {
  const EventRecord &record = item.record;
  const Progress &progress = *stream->progress;
  const uint64_t kernel = std::max(record.after, progress.held_kernel);
  const uint64_t time = std::max({record.submitted_ns, progress.held_until_ns, record.device->engine.ended_at(kernel)});
  std::lock_guard<std::mutex> guard(item.event->mutex);
  count_ended(stream, item.kind);
  complete_record(item.event.get(), record.number, time);
}

void run_queue(Stream *stream) {
  const std::shared_ptr<Progress> progress = stream->progress;
  Engine &engine = stream->context->device->engine;
  std::unique_lock<std::mutex> lock(progress->mutex);
  for (;;) {
    progress->changed.wait(lock, [stream] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty()) break;
    Stream::Item item = std::move(stream->queue.front());
    stream->queue.pop_front();
    const uint64_t after = std::max(item.after, progress->held_kernel);
    lock.unlock();
    if (item.kind != ItemKind::kHeldKernel) engine.wait_for(after);
    if (item.work != nullptr) item.work();
    item.work = nullptr;
    lock.lock();
    if (item.event != nullptr)
      count_recorded(stream, item);
    else
      count_ended(stream, item.kind);
    progress->changed.notify_all();
  }
  stream->worker_running = false;
  progress->changed.notify_all();
}

bool waits_for_default(const Stream *stream) { return (stream->flags & CU_STREAM_NON_BLOCKING) == 0; }

// Expects the device's launch mutex. What comes after a kernel also comes after all kernels before it.
void raise_tail(Stream *stream, uint64_t number) {
  Context *context = stream->context;
  std::atomic<uint64_t> *tails[] = {&stream->tail, &context->tail,
                                    waits_for_default(stream) ? &context->blocking_tail : &stream->tail};
  for (std::atomic<uint64_t> *tail : tails)
    if (tail->load(std::memory_order_relaxed) < number) tail->store(number, std::memory_order_release);
}

// Expects the event's mutex.
void complete_record(EventState *event, uint64_t record, uint64_t time_ns) {
  if (record <= event->completed) return;
  event->completed = record;
  event->time_ns = time_ns;
  event->changed.notify_all();
}

// A record that waits for nothing but a kernel happens when that ends. Expects the event's mutex.
void complete_behind_kernel(EventState *event, const EventRecord &record) {
  complete_record(event, record.number, std::max(record.submitted_ns, record.device->engine.ended_at(record.after)));
}

// Completes the records behind kernels up to `number`. Expects the launch mutex.
void complete_records(Device *device, uint64_t number) {
  while (!device->records.empty() && device->records.begin()->first <= number) {
    auto [event, record] = std::move(device->records.begin()->second);
    device->records.erase(device->records.begin());
    std::lock_guard<std::mutex> guard(event->mutex);
    complete_behind_kernel(event.get(), record);
  }
}

// Whether the event's last record has been reached. Expects the event's mutex.
bool reached(EventState *event) {
  const EventRecord &last = event->last;
  if (event->completed >= last.number) return true;
  if (last.queued || !last.device->engine.ended(last.after)) return false;
  complete_behind_kernel(event, last);
  return true;
}

// When the process can see that the event has happened. Expects the event's mutex.
uint64_t visible_at(const EventState &event) {
  return event.last.device != nullptr ? event.time_ns + event.last.device->facts().event_lag_ns : 0;
}

void wait_for_record(EventState *event, const EventRecord &record) {
  if (!record.queued) record.device->engine.wait_for(record.after);
  std::unique_lock<std::mutex> lock(event->mutex);
  if (!record.queued) complete_behind_kernel(event, record);
  event->changed.wait(lock, [event, &record] { return event->completed >= record.number; });
}

// What is in the queue of `other` now comes before what is submitted to `stream` from now on. `known` is up to which item
// that has been arranged already.
void wait_for_stream(Stream *stream, Stream *other, std::atomic<uint64_t> *known) {
  if (other->pending.load(std::memory_order_acquire) == 0) return;
  const std::shared_ptr<Progress> progress = other->progress;
  uint64_t target;
  {
    std::lock_guard<std::mutex> guard(progress->mutex);
    target = progress->issued;
  }
  if (known->load(std::memory_order_relaxed) >= target) return;
  known->store(target, std::memory_order_relaxed);
  const bool holds = other->holding.load(std::memory_order_acquire) != 0;
  enqueue(stream, holds ? ItemKind::kHold : ItemKind::kEffect, [progress, target] {
    std::unique_lock<std::mutex> lock(progress->mutex);
    progress->changed.wait(lock, [&progress, target] { return progress->completed >= target; });
  });
}

uint64_t launch_on_device(Stream *stream, KernelWork work) {
  Device *device = stream->context->device;
  for (;;) {
    {
      std::lock_guard<std::mutex> guard(device->launch_mutex);
      // The device forgets when a kernel ended a whole queue later.
      if (!device->records.empty()) complete_records(device, std::min(device->engine.forgets(), device->engine.done()));
      if (uint64_t number = device->engine.launch(work.duration_ns, tail_of(stream), work.sms)) {
        raise_tail(stream, number);
        return number;
      }
    }
    device->engine.wait_for_room();
  }
}

}  // namespace

namespace {

void enqueue_item(Stream *stream, Stream::Item item) {
  const ItemKind kind = item.kind;
  Progress &progress = *stream->progress;
  std::lock_guard<std::mutex> guard(progress.mutex);
  item.after = tail_of(stream);
  stream->queue.push_back(std::move(item));
  progress.issued++;
  if (kind != ItemKind::kEffect) stream->holding.fetch_add(1, std::memory_order_release);
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
  progress.changed.notify_all();
}

}  // namespace

void enqueue(Stream *stream, ItemKind kind, std::function<void()> work) {
  enqueue_item(stream, {0, kind, std::move(work)});
}

void launch_kernel_slowly(Stream *stream, KernelWork work) {
  order_with_default_stream(stream);
  if (stream->holding.load(std::memory_order_acquire) == 0) {
    if (work.duration_ns != 0) launch_on_device(stream, work);
    count_launch(stream->context);
    return;
  }
  // Launches that are held back are pending as well: a full queue blocks.
  {
    std::unique_lock<std::mutex> lock(stream->progress->mutex);
    const int depth = static_cast<int>(stream->context->device->facts().queue_depth);
    stream->progress->changed.wait(lock, [stream, depth] { return stream->pending.load() < depth; });
  }
  enqueue(stream, ItemKind::kHeldKernel, [stream, work] {
    if (work.duration_ns != 0) {
      uint64_t number = launch_on_device(stream, work);
      std::lock_guard<std::mutex> guard(stream->progress->mutex);
      stream->progress->held_kernel = number;
    }
    count_launch(stream->context);
  });
}

void drain(Stream *stream) {
  if (stream->pending.load(std::memory_order_acquire) != 0) {
    std::unique_lock<std::mutex> lock(stream->progress->mutex);
    stream->progress->changed.wait(lock, [stream] { return stream->pending.load(std::memory_order_acquire) == 0; });
  }
  Engine &engine = stream->context->device->engine;
  engine.wait_for(tail_of(stream));
  engine.wait_until(engine.visible_at(tail_of(stream)));
}

void drain_context_slowly(Driver *driver, Context *context) {
  if (context->busy_streams.load(std::memory_order_acquire) != 0) {
    std::vector<Stream *> streams;
    {
      DriverLock lock(driver->mutex);
      streams.assign(context->streams.begin(), context->streams.end());
    }
    for (Stream *stream : streams) drain(stream);
  }
  Engine &engine = context->device->engine;
  const uint64_t tail = context->tail.load(std::memory_order_acquire);
  engine.wait_for(tail);
  engine.wait_until(engine.visible_at(tail));
}

void close_stream(Stream *stream) {
  const std::shared_ptr<Progress> progress = stream->progress;
  std::unique_lock<std::mutex> lock(progress->mutex);
  progress->changed.wait(lock, [stream] { return stream->pending.load(std::memory_order_acquire) == 0; });
  stream->closing = true;
  progress->changed.notify_all();
  progress->changed.wait(lock, [stream] { return !stream->worker_running; });
}

void order_with_default_stream_slowly(Stream *stream) {
  if (!waits_for_default(stream)) return;
  if (!stream->legacy) {
    wait_for_stream(stream, stream->context->legacy_stream, &stream->waits_for_default);
    return;
  }
  DriverLock lock(g_driver.load(std::memory_order_acquire)->mutex);
  for (Stream *other : stream->context->streams)
    if (other != stream && waits_for_default(other)) wait_for_stream(stream, other, &other->awaited_by_default);
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
  order_with_default_stream(stream);
  Device *device = stream->context->device;
  EventRecord record;
  record.device = device;
  record.after = tail_of(stream);
  record.submitted_ns = device->engine.now_ns();
  record.queued = stream->pending.load(std::memory_order_acquire) != 0;
  record.held = stream->holding.load(std::memory_order_acquire) != 0;
  const bool ended = !record.queued && device->engine.ended(record.after);
  {
    std::lock_guard<std::mutex> guard(event->mutex);
    record.number = event->last.number + 1;
    event->last = record;
    event->capture = nullptr;
    if (ended) complete_record(event.get(), record.number, record.submitted_ns);
  }
  if (record.queued) {
    enqueue_item(stream, {0, ItemKind::kEffect, nullptr, event, record});
  } else if (!ended) {
    std::lock_guard<std::mutex> guard(device->launch_mutex);
    raise_tail(stream, record.after);
    device->records.emplace(record.after, std::make_pair(event, record));
    complete_records(device, device->engine.done());
  }
}

void wait_for_event(Stream *stream, const std::shared_ptr<EventState> &event) {
  EventRecord record;
  {
    std::lock_guard<std::mutex> guard(event->mutex);
    if (reached(event.get())) return;
    record = event->last;
  }
  const bool in_device_order = record.device == stream->context->device && !record.held;
  if (in_device_order) {
    std::lock_guard<std::mutex> guard(record.device->launch_mutex);
    raise_tail(stream, record.after);
  }
  // The stream's next kernels start after the one before the event; nothing else is before that.
  if (in_device_order && !record.queued) return;
  order_with_default_stream(stream);
  enqueue(stream, in_device_order ? ItemKind::kEffect : ItemKind::kHold,
          [event, record] { wait_for_record(event.get(), record); });
}

bool has_happened(EventState *event) {
  std::lock_guard<std::mutex> guard(event->mutex);
  if (!reached(event)) return false;
  const EventRecord &last = event->last;
  return last.device == nullptr || last.device->facts().event_lag_ns == 0 ||
         last.device->engine.now_ns() >= visible_at(*event);
}

void synchronise_event(EventState *event) {
  EventRecord record;
  bool behind_work;
  {
    std::lock_guard<std::mutex> guard(event->mutex);
    behind_work = !reached(event);
    record = event->last;
  }
  if (behind_work) wait_for_record(event, record);
  if (record.device == nullptr || record.device->facts().event_lag_ns == 0) return;
  uint64_t visible;
  {
    std::lock_guard<std::mutex> guard(event->mutex);
    visible = visible_at(*event);
  }
  record.device->engine.wait_until(visible);
}

}  // namespace simgpu
