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
  LaunchTimers timers;
  std::atomic<int> visible_devices;  // 0: not asked yet
  struct Device {
    Meter meter;
    UtilisationCheck utilisation_check;
    std::atomic<std::uint64_t> reported_ns;
  } devices[region::kMaxDevices];
};

namespace {

using std::memory_order_relaxed;

// While something is measured for the first time, a waiting thread looks at its timers after 0.1 ms, and then after
// twice as long each time, up to 2 ms: the guess is a debt of 25 ms, and what was too much of it goes back when the
// timer is read. Absent, the first launch of every kernel would keep the job for 25 ms divided by its share, or
// kLongestWaitNs if that is less. Shorter times make the thread spin; longer ones delay the job's next launch behind a
// short new kernel by as much.
constexpr std::uint64_t kFirstLookNs = 100'000, kLastLookNs = 2'000'000;
// A thread reports its launches to the region after so many, or when the process has not reported for so long. The
// numbers are for display: without a batch every launch would write a line that all ranks share; with larger ones
// `vgpuctl` shows old numbers, and more is lost when a process is killed.
constexpr std::uint64_t kReportLaunches = 4096, kReportEveryNs = 100'000'000;

constinit WipedOnFork<Process> process;

// A thread's credits; devices with the same number modulo this share one, one at a time. A thread that goes to and fro
// between two such devices returns its credit with every change and pays no launch on the fast path. More of them are
// only memory: 24 bytes in every thread of the program.
constexpr unsigned kCredits = 4;
[[gnu::tls_model("initial-exec")]] thread_local constinit LaunchCredit credits[kCredits]{};

// A measurement that is put off to the next launch: behind another launch of its stream the device does not wait for
// the host, and what is measured is exact. Only where a thread's launches follow each other in one stream.
struct DeferredTimer {
  Cost *cost;  // null: none
  CUstream stream;
  Decision decision;
  bool never;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit DeferredTimer deferred{};

std::uint32_t percent_of(unsigned dev) {
  return runtime::job_region().device(dev).sm_percent.load(memory_order_relaxed);
}
region::DeviceUsage &usage_of(unsigned dev) { return runtime::job_region().usage().device(dev); }

// Where the current context is. False: on no device that is metered.
bool metered_place(runtime::Place *place) {
  return runtime::mode() == runtime::Mode::active && current_place(place) && place->dev != runtime::kNotInJob;
}

// The thread's credit for this device; what it held for another device is returned.
LaunchCredit &credit_for(unsigned dev) {
  LaunchCredit &credit = credits[dev % kCredits];
  if (credit.dev != dev) {
    if (credit.launches != 0) runtime::rank().note_launches(credit.dev, credit.launches);
    if (credit.remaining_ns != 0) give_back(usage_of(credit.dev), credit, percent_of(credit.dev));
    credit = {dev, 0, 0};
  }
  return credit;
}

void report(Process::Device &device, unsigned dev, LaunchCredit &credit, std::uint64_t now_ns) {
  if (credit.launches < kReportLaunches && now_ns - device.reported_ns.load(memory_order_relaxed) < kReportEveryNs)
    return;
  device.reported_ns.store(now_ns, memory_order_relaxed);
  runtime::rank().note_launches(dev, credit.launches);
  credit.launches = 0;
}

void read_measurements(Process &state, const runtime::Place &place) {
  const auto dev = static_cast<unsigned>(place.dev);
  if (read_timers(state.timers, place, state.costs, usage_of(dev), percent_of(dev)))
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

bool spend_in_context(const Work &work) {
  // A thread's first launch, a launch to be measured, or one that may be recorded needs a Launch.
  if (fast_path.costs == nullptr || deferred.cost != nullptr || captures.load(memory_order_relaxed) != 0) return false;
  CUcontext current;
  const runtime::Place *place = runtime::remembered_place(&current);
  if (place == nullptr) return false;
  const auto dev = static_cast<unsigned>(place->dev);
  const Cost *cost = fast_path.costs->find_in_home_slot(work.function, work.blocks, work.threads);
  return (cost != nullptr && spend(credits[dev % kCredits], dev, *cost)) || percent_of(dev) >= 100;
}

Launch::Launch(const Work &work, CUstream stream) : stream_(stream) {
  runtime::Place place;
  Process *state = process.get();
  if (state == nullptr || !metered_place(&place) || is_recording(stream_)) return;
  const auto dev = static_cast<unsigned>(place.dev);
  Cost &cost = state->costs.find(work.function, work.blocks, work.threads);
  LaunchCredit &credit = credit_for(dev);
  // A graph has no threads, and no code of its own.
  first_launch_ = work.threads != 0 && Costs::estimate(cost) == 0 && load_before_first_launch(work.function);
  if (!spend(credit, dev, cost)) {
    wait_for_budget(*state, place, cost, credit);
  } else if (deferred.cost != nullptr) {
    start_deferred(*state, place, cost);
  }
  fast_path = {deferred.cost == nullptr && sees_one_device() ? &credit : nullptr, &state->costs};
}

void Launch::wait_for_budget(Process &state, const runtime::Place &place, Cost &cost, LaunchCredit &credit) {
  const auto dev = static_cast<unsigned>(place.dev);
  Process::Device &device = state.devices[dev];
  region::DeviceUsage &usage = usage_of(dev);

  const region::HalfWord &generation = runtime::job_region().generation();
  std::uint64_t waited_since = 0, look_after = kFirstLookNs;
  Hold hold;
  for (;;) {
    // Acquire: with a new generation comes the new limit. Read before the limit, so that the wait misses no change.
    const std::uint32_t seen = generation.load(std::memory_order_acquire);
    const std::uint32_t percent = percent_of(dev);
    if (percent >= 100) break;
    read_measurements(state, place);
    // Also by who need not wait, perhaps only because costs are too low.
    check_utilisation(device.utilisation_check, dev, usage, state.costs, monotonic_ns());
    const std::uint64_t now = monotonic_ns();
    const Decision decision = decide(usage, device.meter, cost, credit, percent, now);
    if (decision.go) {
      hold.end(stream_);
      note_granted(device.utilisation_check, usage, now);
      report(device, dev, credit, now);
      if (decision.measure && !deferred.never && credit.remaining_ns >= decision.charged_ns) {
        deferred = {&cost, stream_, decision, false};
        break;
      }
      if (decision.measure) timer_ = start_timer(state.timers, place, cost, decision, stream_);
      if (timer_ == nullptr) release_hold(usage, decision.held_ns);
      break;
    }
    if (waited_since == 0) waited_since = now;
    hold.begin(place, stream_);
    std::uint64_t longest = kLongestWaitNs;
    if (state.timers.learning.load(memory_order_relaxed) != 0) {
      longest = look_after;
      look_after = std::min(2 * look_after, kLastLookNs);
    }
    wait_until(generation, seen, std::min(decision.until_ns, now + longest));
  }
  hold.end(stream_);
  if (waited_since != 0) runtime::rank().note_throttled(dev, monotonic_ns() - waited_since);
}

void Launch::start_deferred(Process &state, const runtime::Place &place, const Cost &cost) {
  const DeferredTimer wanted = deferred;
  deferred.cost = nullptr;
  deferred.never = wanted.stream != stream_;
  if (!deferred.never && &cost == wanted.cost) {
    timer_ = start_timer(state.timers, place, *wanted.cost, wanted.decision, stream_);
  }
  if (timer_ == nullptr) release_hold(usage_of(static_cast<unsigned>(place.dev)), wanted.decision.held_ns);
}

void Launch::stop(bool launched) {
  region::DeviceUsage &usage = usage_of(timer_->dev);
  // A first launch that kept the host for long loaded its code: what the events measure, and what was charged, is not the
  // device's time. The next launch is measured.
  const bool measured = launched && !(first_launch_ && timer_->first && waited_for_host(*timer_));
  if (!measured) cancel(usage, *timer_->cost, timer_->charged_ns, timer_->first, percent_of(timer_->dev));
  stop_timer(process.get()->timers, *timer_, usage, measured, stream_);
  if (launched && !measured) wake_all(runtime::job_region().generation());
}

void before_synchronize() {
  if (runtime::mode() != runtime::Mode::active) return;
  for (LaunchCredit &credit : credits) {
    if (credit.remaining_ns != 0) give_back(usage_of(credit.dev), credit, percent_of(credit.dev));
  }
}

void after_synchronize() {
  Process *state = process.get();
  runtime::Place place;
  if (state == nullptr || state->timers.busy.load(memory_order_relaxed) == 0 || !metered_place(&place)) return;
  read_measurements(*state, place);
}

}  // namespace vgpu::sm
