#include "untracked_memory.h"

#include <algorithm>

#include "allocations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "contexts.h"
#include "host_pid.h"
#include "nvml_usage.h"
#include "reserve.h"
#include "runtime.h"

namespace vgpu::runtime {

std::atomic<bool> untracked_unsettled{false};
[[gnu::tls_model("initial-exec")]] thread_local constinit unsigned calls_since_clock_read = 0;

namespace {

// How often an allocation may ask NVML: soon after a context was made, then ever less, down to once a second.
constexpr std::uint64_t kFirstIntervalMs = 20;
constexpr std::uint64_t kLastIntervalMs = 1000;
constexpr unsigned kMeasureTries = 3;
// An NVML that takes this long is slow, and gets a tenth of a program's time at most.
constexpr std::uint64_t kSlowMs = 100;
constexpr std::uint64_t kPauseAfterSlow = 9;

struct Device {
  Mutex mutex;
  // In bytes.
  std::uint64_t charged[region::kKinds] VGPU_GUARDED_BY(mutex);
  std::uint64_t in_progress VGPU_GUARDED_BY(mutex);  // of `charged`: reserved for calls that have not returned
  std::uint64_t last_module VGPU_GUARDED_BY(mutex);
  bool unsettled VGPU_GUARDED_BY(mutex);

  std::uint64_t total() const VGPU_REQUIRES(mutex) {
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : charged) sum += bytes;
    return sum;
  }
};

struct Untracked {
  Device devices[region::kMaxDevices];
  std::atomic<std::uint64_t> due_ms;       // when settle_due() may try again
  std::atomic<std::uint64_t> interval_ms;  // what it then waits; by whoever moved due_ms
};
constinit WipedOnFork<Untracked> untracked;

void measure_soon(Untracked &state) {
  state.interval_ms.store(kFirstIntervalMs, std::memory_order_relaxed);
  state.due_ms.store(coarse_ms() + kFirstIntervalMs, std::memory_order_relaxed);
}

std::uint64_t &charge_of(Device &device, region::Kind kind) VGPU_REQUIRES(device.mutex) {
  return device.charged[static_cast<unsigned>(kind)];
}

enum class Answer : std::uint8_t {
  known,
  later,  // NVML does not list us yet, or another thread is between the driver and our books
  never,  // NVML cannot tell
};

// What the process holds beyond its allocations: exactly that, or within bounds where some of these may be elsewhere.
struct Bounds {
  std::uint64_t least;
  std::uint64_t most;
};

Answer measure_untracked(unsigned dev, const Device &device, Bounds *bounds) VGPU_REQUIRES(device.mutex) {
  for (unsigned tries = 0; tries < kMeasureTries; ++tries) {
    const Recorded known = recorded(dev);
    const std::uint64_t held = rank().memory_held(dev);
    std::uint64_t measured = 0;
    const NvmlUsage result = query_nvml_usage(dev, &measured);
    if (result == NvmlUsage::unknown) return Answer::never;
    if (result == NvmlUsage::not_listed && live_contexts(dev) != 0) return Answer::later;
    if (held != region::bytes_of(known.units) + device.total()) continue;
    if (rank().memory_held(dev) != held || !(recorded(dev) == known)) continue;
    if (region::units_for(measured) < known.units - known.elastic_units && doubt_host_pid()) return Answer::never;
    const auto beyond = [&](std::uint64_t units) {
      const std::uint64_t seen = region::units_for(measured);
      return seen > units ? region::bytes_of(seen - units) : 0;
    };
    *bounds = {beyond(known.units), beyond(known.units - known.elastic_units)};
    return Answer::known;
  }
  return Answer::later;
}

void shrink(unsigned dev, Device &device, region::Kind first, std::uint64_t bytes) VGPU_REQUIRES(device.mutex) {
  const auto give_back = [&](region::Kind kind) {
    device.mutex.assert_held();
    const std::uint64_t part = std::min(bytes, charge_of(device, kind));
    if (part == 0) return;
    rank().release(dev, kind, part);
    charge_of(device, kind) -= part;
    bytes -= part;
  };
  give_back(first);
  // Untracked data goes at any time, but not with a context or a module.
  if (first == region::Kind::data || first == region::Kind::other) give_back(region::Kind::data);
  for (const region::Kind kind : {region::Kind::other, region::Kind::module, region::Kind::context, region::Kind::data})
    give_back(kind);
}

enum class IfOver : std::uint8_t { refuse, charge };

// Makes the charge what it should be. False: it should be more than the limit leaves. `gone` is what has probably been
// given back, which decides where the measure leaves it open.
bool correct(unsigned dev, Device &device, region::Kind kind, IfOver if_over, std::uint64_t gone = 0)
    VGPU_REQUIRES(device.mutex) {
  Bounds measured = {};
  const Answer answer = measure_untracked(dev, device, &measured);
  device.unsettled = answer == Answer::later;
  if (answer == Answer::later) untracked_unsettled.store(true, std::memory_order_relaxed);
  if (answer != Answer::known) return true;
  // What others reserved for calls of theirs that have not returned stays reserved.
  const std::uint64_t have = device.total();
  const std::uint64_t settled = have - device.in_progress;
  const std::uint64_t expected = settled > gone ? settled - gone : 0;
  const std::uint64_t target = std::clamp(expected, measured.least, measured.most) + device.in_progress;
  if (target <= have) {
    shrink(dev, device, kind, have - target);
    return true;
  }
  const std::uint64_t more = target - have;
  const bool charged = if_over == IfOver::refuse ? reserve_measured(dev, kind, more)
                                                 : rank().force(dev, kind, more) == region::Grant::granted;
  if (!charged) return false;
  charge_of(device, kind) += more;
  return true;
}

// A cautious guess is not charged yet: only a figure that somebody measured or set.
std::uint64_t expected_context(unsigned dev) {
  const region::ContextFigure figure = rank().context_figure(dev);
  return figure.source >= region::ContextSource::measured ? figure.bytes : 0;
}

std::uint64_t expected_untracked(unsigned dev, region::Kind kind) {
  if (kind == region::Kind::context) return expected_context(dev);
  Untracked *state = untracked.get();
  if (state == nullptr || kind != region::Kind::module) return 0;
  ScopedLock lock(state->devices[dev].mutex);
  return state->devices[dev].last_module;
}

// What the first context of a process took is what a context takes; later ones share with it.
void note_first_context(unsigned dev, Device &device) VGPU_REQUIRES(device.mutex) {
  const std::uint64_t context = charge_of(device, region::Kind::context);
  if (device.unsettled || context == 0 || context != device.total()) return;
  if (live_contexts(dev) == 1 && recorded(dev).units == 0) rank().note_context(dev, context);
}

}  // namespace

UntrackedCharge::UntrackedCharge(unsigned dev, region::Kind kind)
    : UntrackedCharge(dev, kind, expected_untracked(dev, kind)) {}

UntrackedCharge::UntrackedCharge(unsigned dev, region::Kind kind, std::uint64_t expected)
    : dev_(dev), kind_(kind), granted_(false), reserved_(0) {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  Device &device = state->devices[dev];
  reserved_ = region::bytes_of(region::units_for(expected));
  // Modules differ: that the last one would not fit says nothing of this one. It is measured, and undone if need be.
  granted_ = kind == region::Kind::module && rank().try_to_reserve(dev, kind, reserved_) == region::Grant::granted;
  if (!granted_) {
    if (kind == region::Kind::module) reserved_ = 0;
    granted_ = reserve_memory(dev, kind, reserved_);
  }
  if (!granted_) return;
  ScopedLock lock(device.mutex);
  charge_of(device, kind) += reserved_;
  device.in_progress += reserved_;
}

void UntrackedCharge::cancel() {
  Device &device = untracked.get()->devices[dev_];
  ScopedLock lock(device.mutex);
  device.in_progress -= reserved_;
  shrink(dev_, device, kind_, reserved_);
  reserved_ = 0;
}

bool UntrackedCharge::settle() {
  Untracked &state = *untracked.get();
  Device &device = state.devices[dev_];
  ScopedLock lock(device.mutex);
  if (kind_ == region::Kind::context) measure_soon(state);
  const std::uint64_t before = device.total() - reserved_;
  device.in_progress -= reserved_;
  if (!correct(dev_, device, kind_, IfOver::refuse)) {
    device.in_progress += reserved_;  // until cancel()
    return false;
  }
  reserved_ = 0;
  if (kind_ == region::Kind::context) note_first_context(dev_, device);
  if (kind_ == region::Kind::module && !device.unsettled)
    device.last_module = device.total() - std::min(before, device.total());
  return true;
}

void settle_untracked(unsigned dev, region::Kind kind) {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  Device &device = state->devices[dev];
  ScopedLock lock(device.mutex);
  const std::uint64_t gone = kind == region::Kind::context  ? expected_context(dev)
                             : kind == region::Kind::module ? device.last_module
                                                            : 0;
  correct(dev, device, kind, IfOver::charge, gone);
}

void note_untracked_growth() {
  Untracked *state = untracked.get();
  if (state == nullptr || untracked_unsettled.load(std::memory_order_relaxed)) return;
  measure_soon(*state);
  untracked_unsettled.store(true, std::memory_order_relaxed);
}

void untrack_data(unsigned dev, std::uint64_t bytes) {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  Device &device = state->devices[dev];
  ScopedLock lock(device.mutex);
  charge_of(device, region::Kind::data) += bytes;
  measure_soon(*state);
  untracked_unsettled.store(true, std::memory_order_relaxed);
}

bool settle_before_refusing(unsigned dev) {
  Untracked *state = untracked.get();
  if (state == nullptr) return false;
  Device &device = state->devices[dev];
  ScopedLock lock(device.mutex);
  const std::uint64_t before = device.total();
  // Contexts and modules do not go unseen; what else was there at the last measurement may be gone.
  const bool lasting = before == charge_of(device, region::Kind::context) + charge_of(device, region::Kind::module);
  if (lasting && !untracked_unsettled.load(std::memory_order_relaxed)) return false;
  correct(dev, device, region::Kind::other, IfOver::charge);
  return device.total() < before;
}

void settle_due() {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  const std::uint64_t now = coarse_ms();
  const std::uint64_t interval = state->interval_ms.load(std::memory_order_relaxed);
  std::uint64_t due = state->due_ms.load(std::memory_order_relaxed);
  if (now < due || !state->due_ms.compare_exchange_strong(due, now + interval, std::memory_order_relaxed)) return;
  state->interval_ms.store(std::clamp(2 * interval, kFirstIntervalMs, kLastIntervalMs), std::memory_order_relaxed);
  untracked_unsettled.store(false, std::memory_order_relaxed);  // correct() says so again where it must
  for (unsigned dev = 0; dev < job_region().ndev(); ++dev) {
    Device &device = state->devices[dev];
    ScopedLock lock(device.mutex);
    if (device.total() == 0 && live_contexts(dev) == 0) continue;
    correct(dev, device, charge_of(device, region::Kind::context) == 0 ? region::Kind::context : region::Kind::other,
            IfOver::charge);
    note_first_context(dev, device);
  }
  const std::uint64_t end = coarse_ms();
  if (end - now >= kSlowMs) {
    state->due_ms.store(end + std::max(interval, kPauseAfterSlow * (end - now)), std::memory_order_relaxed);
  }
}

}  // namespace vgpu::runtime
