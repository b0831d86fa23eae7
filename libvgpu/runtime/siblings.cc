#include "siblings.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "job_processes.h"
#include "look.h"
#include "nvml_client.h"
#include "runtime.h"

namespace vgpu::runtime {

namespace {

using region::RestMark;

constexpr std::uint64_t kRestMs = 200;  // so long without any change: not within a call of the driver's
constexpr std::uint64_t kRestNs = (kRestMs + 10) * 1'000'000;  // the coarse clock's steps are up to 10 ms
constexpr std::uint64_t kPollNs = 50'000'000;
constexpr std::uint64_t kPatienceNs = 500'000'000;
constexpr std::uint64_t kWaitAgainMs = 10'000;

struct Sibling {
  RestMark mark;
  std::uint64_t since_ms;  // when it was first seen so; 0: never seen
};
struct Device {
  Mutex mutex;
  Sibling siblings[region::kSlots] VGPU_GUARDED_BY(mutex);
  // When somebody last waited for those that are charged too much, or too little; 0: nobody has.
  std::atomic<std::uint64_t> waited_ms;
  std::atomic<std::uint64_t> looked_again_ms;
};
struct Devices {
  Device all[region::kMaxDevices];
};
constinit WipedOnFork<Devices> devices;

// What is known of contexts is what no correction goes below.
std::uint64_t least_context(unsigned dev) {
  const region::ContextFigure figure = rank().context_figure(dev);
  return figure.source >= region::ContextSource::measured ? figure.bytes : 0;
}

// Others may be charged more for their contexts than these take.
bool has_guessed_siblings(unsigned dev) {
  const region::Usage &usage = job_region().usage();
  const std::uint64_t known = least_context(dev);
  for (unsigned slot = region::kRootSlot + 1; slot < region::kSlots; ++slot) {
    if (slot == rank().slot() || usage.owner(slot).load(std::memory_order_relaxed) == 0) continue;
    if (mark_rest(usage, dev, slot).context_bytes() > known) return true;
  }
  return false;
}

bool waited_lately(const std::atomic<std::uint64_t> &when_ms) {
  const std::uint64_t waited = when_ms.load(std::memory_order_relaxed);
  return waited != 0 && coarse_ms() - waited < kWaitAgainMs;
}

struct Settled {
  bool gave = false;           // something was given back
  std::uint64_t unbooked = 0;  // what NVML shows of those that could not be corrected yet, beyond what they are charged
};

Settled settle_siblings(unsigned dev) {
  Devices *state = devices.get();
  Settled settled;
  if (state == nullptr || looks_are_suspended(dev)) return settled;
  const region::Usage &usage = job_region().usage();
  JobProcesses job;
  // Before the list: what changes meanwhile is left alone.
  Device &device = state->all[dev];
  const std::uint64_t now = coarse_ms();
  {
    ScopedLock lock(device.mutex);
    for (unsigned i = 0; i < job.count(); ++i) {
      Sibling &sibling = device.siblings[job.slot(i)];
      const RestMark mark = mark_rest(usage, dev, job.slot(i));
      if (sibling.since_ms == 0 || !(sibling.mark == mark)) sibling = {mark, now};
    }
  }
  NvmlProcesses processes;
  if (!list_processes(dev, &processes)) return settled;
  for (unsigned i = 0; i < processes.count(); ++i) job.see(processes.pid(i));
  ScopedLock lock(device.mutex);
  for (unsigned i = 0; i < job.count(); ++i) {
    const unsigned slot = job.slot(i);
    const Sibling &sibling = device.siblings[slot];
    std::uint64_t bytes = 0;
    if (slot == rank().slot() || sibling.since_ms == 0) continue;
    if (job.pid(i) == 0 || !processes.find(job.pid(i), &bytes) || bytes == NvmlProcesses::kBytesUnknown) continue;
    const std::uint64_t beside = sibling.mark.bytes_beside_context() + counted_twice(usage, dev, slot);
    // A context takes something. Less than the rest: some of that is elsewhere, and nothing follows for the context.
    if (bytes <= beside) continue;
    const std::uint64_t before = sibling.mark.context_bytes();
    if (now - sibling.since_ms < kRestMs) {
      settled.unbooked += bytes - std::min(bytes, beside + before);
      continue;
    }
    if (!correct_context(usage, dev, {slot, bytes, sibling.mark}, least_context(dev))) continue;
    settled.gave = settled.gave || mark_rest(usage, dev, slot).context_bytes() < before;
  }
  return settled;
}

}  // namespace

void look_at_siblings(unsigned dev) {
  const std::uint64_t unbooked = settle_siblings(dev).unbooked;
  if (unbooked == 0 || job_region().memory_used(dev) + unbooked <= job_region().memory_limit(dev)) return;
  if (waited_lately(devices.get()->all[dev].looked_again_ms)) return;
  devices.get()->all[dev].looked_again_ms.store(coarse_ms(), std::memory_order_relaxed);
  sleep_until(monotonic_ns() + kRestNs);
  settle_siblings(dev);
}

bool wait_for_siblings(unsigned dev) {
  Devices *state = devices.get();
  // What somebody measured is no guess, and nobody has to wait for it.
  if (state == nullptr || !has_guessed_siblings(dev)) return false;
  std::atomic<std::uint64_t> &waited_ms = state->all[dev].waited_ms;
  if (waited_lately(waited_ms)) return false;
  // They may also settle it themselves.
  const std::uint64_t before = job_region().memory_used(dev);
  bool gave = settle_siblings(dev).gave;
  const std::uint64_t start = monotonic_ns();
  while (!gave && monotonic_ns() - start < kPatienceNs) {
    sleep_until(monotonic_ns() + kPollNs);
    gave = settle_siblings(dev).gave || job_region().memory_used(dev) < before;
  }
  waited_ms.store(coarse_ms(), std::memory_order_relaxed);
  return gave;
}

std::uint64_t unbooked_by_siblings(unsigned dev) {
  constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  NvmlProcesses processes;
  if (!list_processes(dev, &processes)) return kUnknown;
  JobProcesses job;
  for (unsigned i = 0; i < processes.count(); ++i) job.see(processes.pid(i));
  std::uint64_t sum = 0;
  for (unsigned i = 0; i < job.count(); ++i) {
    std::uint64_t bytes = 0;
    const RestMark mark = mark_rest(job_region().usage(), dev, job.slot(i));
    if (job.slot(i) == rank().slot()) continue;
    if (job.pid(i) == 0 || !processes.find(job.pid(i), &bytes) || bytes == NvmlProcesses::kBytesUnknown) {
      // Without a context it can hold nothing; with one it will be shown.
      if (mark.context_bytes() != 0) return kUnknown;
      continue;
    }
    const std::uint64_t charged = mark.bytes_beside_context() + mark.context_bytes();
    sum += bytes > charged ? bytes - charged : 0;
  }
  return sum;
}

}  // namespace vgpu::runtime
