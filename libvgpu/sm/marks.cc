#include "marks.h"

#include <sched.h>

#include <algorithm>

#include "base/mutex.h"
#include "captures.h"
#include "driver/table.h"
#include "wait.h"

namespace vgpu::sm {

namespace {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// How old the base may be. The driver tells times as floats of milliseconds, which resolve 0.12 us at this distance;
// longer, they resolve less. Shorter: more events.
constexpr std::uint64_t kBaseNs = 1'000'000'000;
// A base that is older cannot be replaced without a step in the device's time, so that the clock begins anew.
constexpr std::uint64_t kOldBaseNs = 4'000'000'000;
// A batch that has been open for so long gives its marks to another, if there are no others. Its thread may have ended.
constexpr std::uint64_t kLongOpenNs = 1'000'000'000;
// For how long destroying a stream waits for marks that are being recorded: a thread whose record blocks, because the
// device's queue is full, must not stop the program.
constexpr std::uint64_t kLongestRecordNs = 1'000'000'000;
constexpr unsigned kStateBits = 2;

class TryLock {
 public:
  explicit TryLock(std::atomic<bool> &locked) : flag_(locked), locked_(!locked.exchange(true, memory_order_acquire)) {}
  ~TryLock() {
    if (locked_) flag_.store(false, memory_order_release);
  }
  TryLock(const TryLock &) = delete;
  TryLock &operator=(const TryLock &) = delete;
  explicit operator bool() const { return locked_; }

 private:
  std::atomic<bool> &flag_;
  bool locked_;
};

// The last streams that were destroyed. A batch remembers how many had been when it began.
struct Destroyed {
  static constexpr unsigned kRemembered = 64;
  Mutex mutex;                       // of who adds one
  std::atomic<std::uint64_t> count;  // grows after the stream is in its place
  std::atomic<CUstream> streams[kRemembered];
  std::atomic<std::uint32_t> recording;  // threads that put marks into streams
};
constinit WipedOnFork<Destroyed> destroyed_streams;

// While it lives, no stream of which is_alive() said so is destroyed.
class Recording {
 public:
  explicit Recording(std::uint64_t since) : all_(destroyed_streams.get()), since_(since) {
    // Sequentially consistent, as is what forget_stream() does: either it sees us, or we see what it destroys.
    if (all_ != nullptr) all_->recording.fetch_add(1, memory_order_seq_cst);
  }
  ~Recording() {
    if (all_ != nullptr) all_->recording.fetch_sub(1, memory_order_release);
  }
  Recording(const Recording &) = delete;
  Recording &operator=(const Recording &) = delete;

  bool is_alive(CUstream stream) const {
    if (all_ == nullptr) return false;
    const std::uint64_t count = all_->count.load(memory_order_seq_cst);
    if (count - since_ > Destroyed::kRemembered) return false;
    for (std::uint64_t i = since_; i < count; ++i) {
      if (all_->streams[i % Destroyed::kRemembered].load(memory_order_relaxed) == stream) return false;
    }
    return true;
  }

 private:
  Destroyed *all_;
  std::uint64_t since_;
};

constexpr std::uint64_t state_word(std::uint64_t ticket, MarkedBatch::State state) {
  return ticket << kStateBits | state;
}

bool advance(MarkedBatch &marked, std::uint64_t ticket, MarkedBatch::State from, MarkedBatch::State to) {
  std::uint64_t expected = state_word(ticket, from);
  // Acquire and release: whoever comes to the next state finds what was written in this one.
  return marked.state.compare_exchange_strong(expected, state_word(ticket, to), memory_order_acq_rel);
}

// One that has events in this context, else one that has none, else one of another context, whose events are lost; or
// one of a batch that has been open for very long.
MarkedBatch *claim(Marks &marks, std::uint32_t context, std::uint64_t ticket, std::uint64_t now_ns) {
  MarkedBatch *best = nullptr;
  unsigned best_rank = 0;
  for (MarkedBatch &marked : marks.all) {
    const std::uint64_t state = marked.state.load(memory_order_acquire);
    const auto kind = static_cast<MarkedBatch::State>(state & ((1u << kStateBits) - 1));
    const bool abandoned =
        kind == MarkedBatch::open && now_ns > marked.opened_ns.load(memory_order_relaxed) + kLongOpenNs;
    if (kind != MarkedBatch::free && !abandoned) continue;
    const std::uint32_t its_context = marked.context.load(memory_order_relaxed);
    const unsigned rank = abandoned ? 1 : its_context == context ? 4 : its_context == 0 ? 3 : 2;
    if (rank <= best_rank) continue;
    best = &marked;
    best_rank = rank;
    if (rank == 4) break;
  }
  if (best == nullptr) return nullptr;
  std::uint64_t seen = best->state.load(memory_order_acquire);
  const auto kind = static_cast<MarkedBatch::State>(seen & ((1u << kStateBits) - 1));
  if (kind != MarkedBatch::free && kind != MarkedBatch::open) return nullptr;
  // Another thread was faster: then this batch is not marked.
  if (!best->state.compare_exchange_strong(seen, state_word(ticket, MarkedBatch::recording), memory_order_acq_rel))
    return nullptr;
  return best;
}

bool make_events(MarkedBatch &marked, std::uint32_t context, unsigned count) {
  if (marked.context.load(memory_order_relaxed) != context) {
    marked.context.store(context, memory_order_relaxed);
    marked.made = 0;
  }
  for (; marked.made < count; ++marked.made) {
    if (REAL(cuEventCreate)(&marked.events[marked.made], CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
  }
  return true;
}

bool record(MarkedBatch &marked, unsigned mark, CUstream stream) {
  marked.recorded[mark].called_ns = monotonic_ns();
  if (REAL(cuEventRecord)(marked.events[mark], stream) != CUDA_SUCCESS) return false;
  marked.recorded[mark].returned_ns = monotonic_ns();
  return true;
}

// The device's time of an event. False: it has not come to it, or there is no telling.
bool device_time(const Marks &marks, CUevent event, std::uint64_t *device_ns) {
  float ms = 0;
  if (REAL(cuEventElapsedTime)(&ms, marks.base, event) != CUDA_SUCCESS) return false;
  *device_ns = static_cast<std::uint64_t>(static_cast<std::int64_t>(marks.base_ns) +
                                          static_cast<std::int64_t>(static_cast<double>(ms) * 1e6));
  return true;
}

// Records a base where there is none, and now and then the next one, in a stream in which a mark follows.
void renew_base(Marks &marks, std::uint32_t context, CUstream stream, std::uint64_t now_ns) {
  // Another thread may have been later than `now_ns`.
  const bool recent = now_ns < marks.base_recorded_ns + kOldBaseNs;
  const bool usable = marks.base_context == context && recent;
  // Contexts in turns: one of them has the base, or each would begin anew every time. The others' batches are charged what
  // their launches cost one by one.
  if (!usable && recent && runtime::context_is_open(marks.base_context)) return;
  if (!usable) {
    if (marks.base_context != context) {
      marks.base_context = 0;
      if (REAL(cuEventCreate)(&marks.base, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return;
      if (REAL(cuEventCreate)(&marks.next_base, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        REAL(cuEventDestroy_v2)(marks.base);
        return;
      }
    }
    if (REAL(cuEventRecord)(marks.base, stream) != CUDA_SUCCESS) return;
    marks.base_context = context;
    marks.base_ns = marks.base_recorded_ns = now_ns;
    marks.next_recorded = false;
    marks.clock = {};
  } else if (now_ns > marks.base_recorded_ns + kBaseNs && !marks.next_recorded) {
    marks.next_recorded = REAL(cuEventRecord)(marks.next_base, stream) == CUDA_SUCCESS;
  }
}

void use_next_base(Marks &marks) {
  std::uint64_t device_ns;
  if (!marks.next_recorded || !device_time(marks, marks.next_base, &device_ns)) return;
  std::swap(marks.base, marks.next_base);
  marks.base_ns = device_ns;
  marks.base_recorded_ns = monotonic_ns();
  marks.next_recorded = false;
}

// False: the device is not done with it.
bool is_done(const MarkedBatch &marked) {
  for (unsigned mark = marked.count; mark >= 1; --mark) {
    if (REAL(cuEventQuery)(marked.events[mark]) == CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

bool end_of(Marks &marks, const MarkedBatch &marked, BatchEnd *end) {
  std::uint64_t times[MarkedBatch::kMarks];
  for (unsigned mark = 0; mark <= marked.count; ++mark) {
    if (!device_time(marks, marked.events[mark], &times[mark])) return false;
  }
  for (unsigned mark = 0; mark <= marked.count; ++mark) {
    marks.clock.see(times[mark], marked.recorded[mark], mark == 0 && marked.idle);
  }
  end->started_ns = marks.clock.host_time(times[0]);
  for (unsigned mark = 1; mark <= marked.count; ++mark) {
    const std::uint64_t at = marks.clock.host_time(times[mark]), returned = marked.recorded[mark].returned_ns;
    end->at_ns = std::max(end->at_ns, at);
    end->behind_ns = std::max(end->behind_ns, at - std::min(at, returned));
  }
  return true;
}

}  // namespace

void BatchStreams::begin(CUstream first) {
  // No stream has this handle; the null pointer is one.
  std::fill(std::begin(recent), std::end(recent), reinterpret_cast<CUstream>(~std::uintptr_t{0}));
  recent[place(first)] = all[0] = first;
  count = 1;
  overflow = false;
}

void BatchStreams::add(CUstream stream) {
  recent[place(stream)] = stream;
  if (std::find(all, all + count, stream) != all + count) return;
  if (count == kMost) {
    overflow = true;
  } else {
    all[count++] = stream;
  }
}

MarksInUse begin_marks(Marks &marks, const runtime::Place &place, CUstream stream, std::uint64_t now_ns) {
  const Destroyed *destroyed = destroyed_streams.get();
  if (place.serial == 0 || destroyed == nullptr || !takes_events(stream)) return {};
  const std::uint64_t gone = destroyed->count.load(memory_order_relaxed);
  const std::uint64_t ticket = marks.tickets.fetch_add(1, memory_order_relaxed) + 1;
  const bool idle = marks.pending.load(memory_order_relaxed) == 0;
  MarkedBatch *marked = claim(marks, place.serial, ticket, now_ns);
  if (marked == nullptr) return {};
  const RelaxedCapture relaxed;
  if (const TryLock lock(marks.locked); lock) renew_base(marks, place.serial, stream, now_ns);
  if (!make_events(*marked, place.serial, 2) || !record(*marked, 0, stream)) {
    advance(*marked, ticket, MarkedBatch::recording, MarkedBatch::free);
    return {};
  }
  marked->idle = idle;
  marked->opened_ns.store(now_ns, memory_order_relaxed);
  advance(*marked, ticket, MarkedBatch::recording, MarkedBatch::open);
  return {marked, ticket, gone};
}

void end_marks(Marks &marks, const MarksInUse &in_use, const Batch &batch, const BatchStreams &streams) {
  MarkedBatch &marked = *in_use.marks;
  if (!advance(marked, in_use.ticket, MarkedBatch::open, MarkedBatch::recording)) return;
  bool recorded =
      !streams.overflow && make_events(marked, marked.context.load(memory_order_relaxed), 1 + streams.count);
  marked.count = 0;
  if (recorded) {
    const RelaxedCapture relaxed;
    const Recording recording(in_use.destroyed);
    for (unsigned i = 0; recorded && i < streams.count; ++i) {
      const CUstream stream = streams.all[i];
      // A mark in the legacy stream would make others wait for each other; theirs come behind its work anyway.
      const bool legacy = stream == nullptr || stream == CU_STREAM_LEGACY;
      if (legacy && streams.count > 1) continue;
      recorded = takes_events(stream) && recording.is_alive(stream) && !is_recording(stream) &&
                 record(marked, marked.count + 1, stream);
      if (recorded) ++marked.count;
    }
  }
  marked.batch = batch;
  if (!recorded || marked.count == 0) {
    advance(marked, in_use.ticket, MarkedBatch::recording, MarkedBatch::free);
    return;
  }
  marks.pending.fetch_add(1, memory_order_relaxed);
  advance(marked, in_use.ticket, MarkedBatch::recording, MarkedBatch::pending);
}

void drop_marks(const MarksInUse &in_use) {
  if (in_use.marks != nullptr) advance(*in_use.marks, in_use.ticket, MarkedBatch::open, MarkedBatch::free);
}

bool read_marks(Marks &marks, const runtime::Place &place, const JobDevice &job, Meter &meter, Costs &costs,
                std::uint32_t percent, const Synchronised &synchronised) {
  if (marks.pending.load(memory_order_relaxed) == 0) return false;
  const TryLock lock(marks.locked);
  if (!lock) return false;
  const RelaxedCapture relaxed;
  bool gave_back = false;
  for (MarkedBatch &marked : marks.all) {
    const std::uint64_t state = marked.state.load(memory_order_acquire), ticket = state >> kStateBits;
    if (state != state_word(ticket, MarkedBatch::pending)) continue;
    const std::uint32_t context = marked.context.load(memory_order_relaxed);
    if (context != place.serial) {
      // Events are queried only in the current context, which exists: another may be destroyed, and its events with it.
      if (runtime::context_is_open(context)) continue;
      marked.context.store(0, memory_order_relaxed);
    } else if (!is_done(marked)) {
      continue;
    } else if (BatchEnd end; marks.base_context == place.serial && end_of(marks, marked, &end)) {
      gave_back |= settle(job, meter, costs, marked.batch, end, percent);
      if (synchronised.ticket == ticket && synchronised.returned_ns > end.at_ns) {
        const std::uint64_t latency = synchronised.returned_ns - end.at_ns;
        const std::uint64_t least = marks.sync_latency_ns.load(memory_order_relaxed);
        if (least == 0 || latency < least) marks.sync_latency_ns.store(latency, memory_order_relaxed);
      }
    }
    marks.pending.fetch_sub(1, memory_order_relaxed);
    advance(marked, ticket, MarkedBatch::pending, MarkedBatch::free);
  }
  if (marks.base_context == place.serial) use_next_base(marks);
  return gave_back;
}

void forget_stream(CUstream stream) {
  Destroyed *all = destroyed_streams.get();
  if (all == nullptr) return;
  {
    ScopedLock lock(all->mutex);
    const std::uint64_t number = all->count.load(memory_order_relaxed);
    all->streams[number % Destroyed::kRemembered].store(stream, memory_order_relaxed);
    all->count.store(number + 1, memory_order_seq_cst);
  }
  const std::uint64_t until = monotonic_ns() + kLongestRecordNs;
  while (all->recording.load(memory_order_seq_cst) != 0 && monotonic_ns() < until) sched_yield();
}

}  // namespace vgpu::sm
