#include "launch.h"

#include <algorithm>

#include "driver/table.h"
#include "first_launch.h"
#include "held.h"
#include "runtime/devices.h"
#include "utilisation_check.h"
#include "wait.h"

namespace vgpu::sm {

[[gnu::tls_model("initial-exec")]] thread_local constinit FastPath fast_path{};

// All zeroes is its beginning; a forked child has its own.
struct Process {
  Costs costs;
  std::atomic<int> visible_devices;  // 0: not asked yet
  struct Device {
    Meter meter;
    Marks marks;
    UtilisationCheck utilisation_check;
    std::atomic<std::uint64_t> reported_ns;
    // Instead of the region's, if that is of a layout without them: then ranks pay for what they use at the same time.
    region::DeviceMore own_words;
  } devices[region::kMaxDevices];
};

namespace {

using std::memory_order_relaxed;

// While marks of its process are to be read, a waiting thread looks at them after 0.1 ms, and then after twice as long
// each time, up to 2 ms: what was charged too much goes back when they are read. Absent, the first launch of every kernel
// would keep the job for 25 ms divided by its share, or kLongestWaitNs if that is less. Shorter times make the thread
// spin; longer ones delay the job's next launch by as much.
constexpr std::uint64_t kFirstLookNs = 100'000, kLastLookNs = 2'000'000;
// A launch whose call took longer was not only launched: the host lost its core, code was loaded, or the device's queue
// was full. Nothing is learned from it. Smaller: slow calls are taken for that, and kernels stay unknown. Larger: the
// time for which the host lost its core makes kernels too cheap.
constexpr std::uint64_t kLongCallNs = 50'000;
// A synchronisation ends a batch without a mark, by the time at which it returned, unless the last mark is older than
// this. Shorter: programs that synchronise behind each launch pay for two events each time. Longer: how much later than
// the device it returns is learned more slowly.
constexpr std::uint64_t kMarkSynchronisationsNs = 5'000'000;
// A thread reports its launches to the region after so many, or when the process has not reported for so long. The
// numbers are for display: without a batch every launch would write a line that all ranks share; with larger ones
// `vgpuctl` shows old numbers, and more is lost when a process is killed.
constexpr std::uint64_t kReportLaunches = 4096, kReportEveryNs = 100'000'000;

constexpr std::uint32_t kNoContext = ~std::uint32_t{0};

constinit WipedOnFork<Process> process;

// What a thread has on its devices; devices with the same number modulo this share one, one at a time. A thread that goes
// to and fro between two such devices ends its batch with every change and pays no launch on the fast path. More of them
// are only memory: some hundred bytes in every thread of the program.
constexpr unsigned kDevices = 4;
[[gnu::tls_model("initial-exec")]] thread_local constinit ThreadOnDevice on_devices[kDevices]{};

// The synchronisation that the thread is in.
struct Synchronisation {
  ThreadOnDevice *thread;  // null: it has nothing to charge
  unsigned dev;
  bool ends_batch;  // its return does; otherwise marks do
  Batch batch;
  std::uint64_t ticket;  // of the marks, if it waits for all of them
  std::uint64_t marked_ns;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Synchronisation synchronisation{};

std::uint32_t percent_of(unsigned dev) {
  return runtime::job_region().device(dev).sm_percent.load(memory_order_relaxed);
}
region::DeviceUsage &usage_of(unsigned dev) { return runtime::job_region().usage().device(dev); }

JobDevice job_device(Process &state, unsigned dev) {
  const region::Usage &usage = runtime::job_region().usage();
  region::DeviceMore &more = usage.has_appendix() ? usage.device_more(dev) : state.devices[dev].own_words;
  return {usage.device(dev), more.pace, more.coverage};
}

// Where the current context is. False: on no device that is metered.
bool metered_place(runtime::Place *place) {
  return runtime::mode() == runtime::Mode::active && current_place(place) && place->dev != runtime::kNotInJob;
}

// Ends the thread's batch, with marks if its context is the current one.
void end_batch(Process &state, ThreadOnDevice &thread, std::uint32_t current_context) {
  const Batch batch = close_batch(thread.credit);
  const MarksInUse marks = thread.marks;
  thread.marks = {};
  if (marks.marks == nullptr) return;
  if (thread.context == current_context) {
    end_marks(state.devices[thread.credit.dev].marks, marks, batch, thread.streams);
  } else {
    drop_marks(marks);
  }
}

void report(Process::Device &device, LaunchCredit &credit, std::uint64_t now_ns) {
  if (credit.launches - credit.reported < kReportLaunches &&
      now_ns - device.reported_ns.load(memory_order_relaxed) < kReportEveryNs)
    return;
  device.reported_ns.store(now_ns, memory_order_relaxed);
  runtime::rank().note_launches(credit.dev, credit.launches - credit.reported);
  credit.reported = credit.launches;
}

// What the thread has on this device; what it had on another device in its place is ended and returned.
ThreadOnDevice &thread_on(Process &state, const runtime::Place &place) {
  const auto dev = static_cast<unsigned>(place.dev);
  ThreadOnDevice &thread = on_devices[dev % kDevices];
  LaunchCredit &credit = thread.credit;
  if (credit.open && (credit.dev != dev || thread.context != place.serial)) end_batch(state, thread, place.serial);
  if (credit.dev != dev) {
    if (credit.launches != credit.reported)
      runtime::rank().note_launches(credit.dev, credit.launches - credit.reported);
    if (credit.unspent_ns != 0) give_back(usage_of(credit.dev), credit, percent_of(credit.dev));
    credit = {};
    credit.dev = dev;
  }
  return thread;
}

void look_at_marks(Process &state, const runtime::Place &place, const Synchronised &synchronised) {
  const auto dev = static_cast<unsigned>(place.dev);
  Process::Device &device = state.devices[dev];
  if (read_marks(device.marks, place, job_device(state, dev), device.meter, state.costs, percent_of(dev), synchronised))
    wake_all(runtime::job_region().generation());
}

}  // namespace

bool sees_one_device() {
  Process *state = process.get();
  if (state == nullptr) return false;
  int count = state->visible_devices.load(memory_order_relaxed);
  if (count == 0 && REAL(cuDeviceGetCount)(&count) == CUDA_SUCCESS) {
    state->visible_devices.store(count, memory_order_relaxed);
  }
  return count == 1;
}

bool spend_in_context(std::uint64_t key, CUstream stream) {
  // A thread's first launch, or one that may be recorded, needs a Launch.
  if (fast_path.costs == nullptr || captures.load(memory_order_relaxed) != 0) return false;
  CUcontext current;
  const runtime::Place *place = runtime::remembered_place(&current);
  if (place == nullptr) return false;
  // A serial number is of one context, on one device.
  ThreadOnDevice *thread = fast_path.last;
  if (thread->context != place->serial) thread = &on_devices[static_cast<unsigned>(place->dev) % kDevices];
  const Cost *cost = fast_path.costs->find_in_home_slot(key);
  const bool in_batch = thread->context == place->serial && thread->streams.has_recent(stream);
  return (in_batch && cost != nullptr && spend(thread->credit, *cost)) ||
         percent_of(static_cast<unsigned>(place->dev)) >= 100;
}

Launch::Launch(const Work &work, CUstream stream) {
  runtime::Place place;
  Process *state = process.get();
  if (state == nullptr || !metered_place(&place) || is_recording(stream)) return;
  const LaunchKey key = Costs::launch_key(work.function, work.blocks, work.threads);
  ThreadOnDevice &thread = thread_on(*state, place);
  const Cost *cost = state->costs.find(key.key);
  // A graph has no threads, and no code of its own.
  if (cost == nullptr && work.threads != 0) load_before_first_launch(work.function);
  if (cost != nullptr && spend(thread.credit, *cost)) {
    thread.streams.add(stream);
  } else {
    wait_for_budget(*state, place, key, stream);
  }
  fast_path = {sees_one_device() ? &thread : nullptr, &state->costs, &thread};
}

void Launch::wait_for_budget(Process &state, const runtime::Place &place, const LaunchKey &key, CUstream stream) {
  const auto dev = static_cast<unsigned>(place.dev);
  Process::Device &device = state.devices[dev];
  const JobDevice job = job_device(state, dev);
  ThreadOnDevice &thread = on_devices[dev % kDevices];

  const region::HalfWord &generation = runtime::job_region().generation();
  std::uint64_t waited_since = 0, look_after = kFirstLookNs;
  Hold hold;
  for (;;) {
    // Acquire: with a new generation comes the new limit. Read before the limit, so that the wait misses no change.
    const std::uint32_t seen = generation.load(std::memory_order_acquire);
    const std::uint32_t percent = percent_of(dev);
    look_at_marks(state, place, {});
    const std::uint64_t now = monotonic_ns();
    note_charged(device.utilisation_check, job.usage, now);
    const Decision decision =
        percent < 100 ? decide(job, device.meter, state.costs, key, thread.credit, percent, now) : Decision{};
    // Before it waits as well: the device may be done with it by then.
    if (thread.credit.open) end_batch(state, thread, place.serial);
    if (percent >= 100) break;
    // Also by who need not wait, perhaps only because what is charged is too little.
    check_utilisation(device.utilisation_check, dev, job.usage, state.costs, now);
    if (decision.go) {
      hold.end(stream);
      report(device, thread.credit, now);
      thread.marks = begin_marks(device.marks, place, stream, now);
      thread.context = place.serial != 0 ? place.serial : kNoContext;
      thread.streams.begin(stream);
      ends_ = open_batch(thread.credit, decision);
      thread_ = &thread;
      dev_ = dev;
      called_ns_ = monotonic_ns();
      break;
    }
    if (waited_since == 0) waited_since = now;
    hold.begin(place, stream);
    std::uint64_t longest = kLongestWaitNs;
    if (device.marks.pending.load(memory_order_relaxed) != 0) {
      longest = look_after;
      look_after = std::min(2 * look_after, kLastLookNs);
    }
    wait_until(generation, seen, std::min(decision.until_ns, now + longest));
  }
  hold.end(stream);
  if (waited_since != 0) runtime::rank().note_throttled(dev, monotonic_ns() - waited_since);
}

void Launch::launched(bool successfully) {
  // A launch on several devices may have ended the batch of one for that of another.
  if (thread_->credit.dev != dev_ || !thread_->credit.open) return;
  if (!successfully) {
    cancel_batch(thread_->credit);
    drop_marks(thread_->marks);
    thread_->marks = {};
    return;
  }
  Batch &batch = thread_->credit.batch;
  batch.arrived_ns = monotonic_ns();
  batch.interrupted = batch.arrived_ns - called_ns_ > kLongCallNs;
  if (ends_) end_batch(*process.get(), *thread_, thread_->context);
}

void before_synchronize(Awaited awaited, CUstream stream) {
  Process *state = process.get();
  runtime::Place place;
  synchronisation.thread = nullptr;
  if (state == nullptr || fast_path.costs == nullptr || !metered_place(&place)) return;
  const auto dev = static_cast<unsigned>(place.dev);
  ThreadOnDevice &thread = on_devices[dev % kDevices];
  if (thread.credit.dev != dev) return;
  synchronisation.thread = &thread;
  synchronisation.dev = dev;
  synchronisation.ends_batch = false;
  synchronisation.ticket = 0;
  if (thread.credit.open) {
    const bool all = awaited == Awaited::context ||
                     (awaited == Awaited::stream && thread.streams.count == 1 && thread.streams.all[0] == stream);
    const std::uint64_t now = monotonic_ns();
    const bool latency_known = state->devices[dev].marks.sync_latency_ns.load(memory_order_relaxed) != 0;
    if (all && latency_known && now - synchronisation.marked_ns < kMarkSynchronisationsNs) {
      synchronisation.ends_batch = true;
      synchronisation.batch = close_batch(thread.credit);
      drop_marks(thread.marks);
      thread.marks = {};
    } else {
      synchronisation.marked_ns = now;
      if (all) synchronisation.ticket = thread.marks.ticket;
      end_batch(*state, thread, place.serial);
    }
  }
  if (thread.credit.unspent_ns != 0) give_back(usage_of(dev), thread.credit, percent_of(dev));
}

void after_synchronize() {
  if (synchronisation.thread == nullptr) return;
  const std::uint64_t now = monotonic_ns();
  Process *state = process.get();
  const unsigned dev = synchronisation.dev;
  Process::Device &device = state->devices[dev];
  if (synchronisation.ends_batch) {
    const std::uint64_t latency = device.marks.sync_latency_ns.load(memory_order_relaxed);
    const std::uint64_t end = std::max(synchronisation.batch.arrived_ns, now - std::min(now, latency));
    if (settle(job_device(*state, dev), device.meter, state->costs, synchronisation.batch, {end}, percent_of(dev)))
      wake_all(runtime::job_region().generation());
  }
  runtime::Place place;
  if (device.marks.pending.load(memory_order_relaxed) != 0 && metered_place(&place) &&
      static_cast<unsigned>(place.dev) == dev)
    look_at_marks(*state, place, {synchronisation.ticket, now});
}

void doubt_cost(const void *graph) {
  if (Process *state = process.get()) state->costs.doubt(Costs::key(graph, 1, 0));
}

void doubt_costs() {
  if (Process *state = process.get()) state->costs.doubt_all();
}

}  // namespace vgpu::sm
