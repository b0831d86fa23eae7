#include "launch.h"

#include <algorithm>

#include "driver/table.h"
#include "runtime/devices.h"
#include "wait.h"
#include "watch.h"

namespace vgpu::sm {

std::atomic<std::uint32_t> captures{0};
[[gnu::tls_model("initial-exec")]] thread_local constinit Till till{};

// All zeroes is its beginning; a forked child has its own.
struct Process {
  Costs costs;
  Probes probes;
  std::atomic<int> visible_devices;  // 0: not asked yet
  struct Device {
    Meter meter;
    Watch watch;
    std::atomic<std::uint64_t> reported_ns;
  } devices[region::kMaxDevices];
};

namespace {

using std::memory_order_relaxed;

constexpr std::uint64_t kFirstLookNs = 100'000, kLastLookNs = 2'000'000;  // at what is measured for the first time
constexpr std::uint64_t kReportLaunches = 4096, kReportEveryNs = 100'000'000;

constinit WipedOnFork<Process> process;

// Several devices may share a purse, one at a time.
constexpr unsigned kPurses = 4;
[[gnu::tls_model("initial-exec")]] thread_local constinit Purse purses[kPurses]{};

// A measurement that waits for the next launch: behind another of its stream the device does not wait for the host, and
// what is measured is exact. Only where a thread's launches follow each other in one stream.
struct Deferred {
  Cost *cost;  // null: none
  CUstream stream;
  Decision decision;
  bool never;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Deferred deferred{};

std::uint32_t percent_of(unsigned dev) {
  return runtime::job_region().device(dev).sm_percent.load(memory_order_relaxed);
}
region::DeviceUsage &usage_of(unsigned dev) { return runtime::job_region().usage().device(dev); }

bool is_recording(CUstream stream) {
  if (captures.load(memory_order_relaxed) == 0) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // Where the driver will not say, another stream is being captured and this one is the legacy stream, which cannot be.
  return REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Where the current context is. False: nowhere that concerns us.
bool metered_place(runtime::Place *place) {
  return runtime::mode() == runtime::Mode::active && current_place(place) && place->dev != runtime::kNotInJob;
}

// The thread's purse for this device; what another device left in it goes back.
Purse &purse_for(unsigned dev) {
  Purse &purse = purses[dev % kPurses];
  if (purse.dev != dev) {
    if (purse.launches != 0) runtime::rank().note_launches(purse.dev, purse.launches);
    if (purse.credit_ns != 0) give_back(usage_of(purse.dev), purse, percent_of(purse.dev));
    purse = {dev, 0, 0};
  }
  return purse;
}

void report(Process::Device &device, unsigned dev, Purse &purse, std::uint64_t now_ns) {
  if (purse.launches < kReportLaunches && now_ns - device.reported_ns.load(memory_order_relaxed) < kReportEveryNs)
    return;
  device.reported_ns.store(now_ns, memory_order_relaxed);
  runtime::rank().note_launches(dev, purse.launches);
  purse.launches = 0;
}

void read_measurements(Process &state, const runtime::Place &place) {
  // In a capture of whatever stream, asking for an event can spoil it.
  if (captures.load(memory_order_relaxed) != 0) return;
  const auto dev = static_cast<unsigned>(place.dev);
  if (read_probes(state.probes, place, state.costs, usage_of(dev), percent_of(dev)))
    wake_all(runtime::job_region().generation());
}

}  // namespace

void capture_begun() { captures.fetch_add(1, memory_order_relaxed); }
void capture_ended() {
  std::uint32_t open = captures.load(memory_order_relaxed);
  while (open != 0 && !captures.compare_exchange_weak(open, open - 1, memory_order_relaxed)) {
  }
}

bool sees_one_device() {
  Process *state = process.get();
  if (state == nullptr) return false;
  int count = state->visible_devices.load(memory_order_relaxed);
  if (count == 0 && REAL(cuDeviceGetCount)(&count) == CUDA_SUCCESS) {
    state->visible_devices.store(count, memory_order_relaxed);
  }
  return count == 1;
}

bool pay_in_context(const Work &work) {
  // A thread that has not been here before, or has a launch to measure, or perhaps one to be recorded.
  if (till.costs == nullptr || deferred.cost != nullptr || captures.load(memory_order_relaxed) != 0) return false;
  CUcontext current;
  const runtime::Place *place = runtime::remembered_place(&current);
  if (place == nullptr) return false;
  const auto dev = static_cast<unsigned>(place->dev);
  const Cost *cost = till.costs->find_at_once(work.function, work.blocks, work.threads);
  return (cost != nullptr && sm::pay(purses[dev % kPurses], dev, *cost)) || percent_of(dev) >= 100;
}

Launch::Launch(const Work &work, CUstream stream) : stream_(stream) {
  runtime::Place place;
  Process *state = process.get();
  if (state == nullptr || !metered_place(&place) || is_recording(stream_)) return;
  const auto dev = static_cast<unsigned>(place.dev);
  Cost &cost = state->costs.find(work.function, work.blocks, work.threads);
  Purse &purse = purse_for(dev);
  if (captures.load(memory_order_relaxed) != 0 || !sm::pay(purse, dev, cost)) {
    pay(*state, place, cost, purse);
  } else if (deferred.cost != nullptr) {
    open_deferred(*state, place, cost);
  }
  till = {deferred.cost == nullptr && sees_one_device() ? &purse : nullptr, &state->costs};
}

void Launch::pay(Process &state, const runtime::Place &place, Cost &cost, Purse &purse) {
  const auto dev = static_cast<unsigned>(place.dev);
  Process::Device &device = state.devices[dev];
  region::DeviceUsage &usage = usage_of(dev);

  const region::HalfWord &generation = runtime::job_region().generation();
  std::uint64_t waited_since = 0, look_after = kFirstLookNs;
  for (;;) {
    // Acquire: with a new generation comes the new limit. Read before it, so that no change is slept through.
    const std::uint32_t seen = generation.load(std::memory_order_acquire);
    const std::uint32_t percent = percent_of(dev);
    if (percent >= 100) break;
    read_measurements(state, place);
    const std::uint64_t now = monotonic_ns();
    const Decision decision = decide(usage, device.meter, cost, purse, percent, now);
    if (decision.go) {
      report(device, dev, purse, now);
      const bool measure = decision.measure && captures.load(memory_order_relaxed) == 0;
      if (measure && !deferred.never && purse.credit_ns >= decision.charged_ns) {
        deferred = {&cost, stream_, decision, false};
        break;
      }
      if (measure) probe_ = open_probe(state.probes, place, cost, decision, stream_);
      if (probe_ == nullptr) let_go(usage, decision.held_ns);
      break;
    }
    if (waited_since == 0) waited_since = now;
    watch(device.watch, dev, usage, state.costs, now);
    std::uint64_t longest = kLongestWaitNs;
    if (state.probes.learning.load(memory_order_relaxed) != 0) {
      longest = look_after;
      look_after = std::min(2 * look_after, kLastLookNs);
    }
    wait_until(generation, seen, std::min(decision.until_ns, now + longest));
  }
  if (waited_since != 0) runtime::rank().note_throttled(dev, monotonic_ns() - waited_since);
}

void Launch::open_deferred(Process &state, const runtime::Place &place, const Cost &cost) {
  const Deferred wanted = deferred;
  deferred.cost = nullptr;
  deferred.never = wanted.stream != stream_;
  if (!deferred.never && &cost == wanted.cost) {
    probe_ = open_probe(state.probes, place, *wanted.cost, wanted.decision, stream_);
  }
  if (probe_ == nullptr) let_go(usage_of(static_cast<unsigned>(place.dev)), wanted.decision.held_ns);
}

void Launch::close(bool launched) {
  close_probe(process.get()->probes, *probe_, usage_of(probe_->dev), launched, stream_);
}

void before_waiting() {
  if (runtime::mode() != runtime::Mode::active) return;
  for (Purse &purse : purses) {
    if (purse.credit_ns != 0) give_back(usage_of(purse.dev), purse, percent_of(purse.dev));
  }
}

void after_waiting() {
  Process *state = process.get();
  runtime::Place place;
  if (state == nullptr || state->probes.busy.load(memory_order_relaxed) == 0 || !metered_place(&place)) return;
  read_measurements(*state, place);
}

}  // namespace vgpu::sm
