#include "launch_timer.h"

#include <algorithm>

#include "driver/table.h"
#include "wait.h"

namespace vgpu::sm {

namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

class TryLock {
 public:
  explicit TryLock(std::atomic<bool> &taken) : taken_(taken), locked_(!taken.exchange(true, memory_order_acquire)) {}
  ~TryLock() {
    if (locked_) taken_.store(false, memory_order_release);
  }
  TryLock(const TryLock &) = delete;
  TryLock &operator=(const TryLock &) = delete;
  explicit operator bool() const { return locked_; }

 private:
  std::atomic<bool> &taken_;
  bool locked_;
};

// One that has events in this context, else one that has none, else another context's, whose two are lost with it.
Probe *find_free(Probes &probes, std::uint32_t context) {
  Probe *best = nullptr;
  for (Probe &probe : probes.all) {
    if (probe.state.load(memory_order_acquire) != Probe::free) continue;
    if (probe.context == context) return &probe;
    if (best == nullptr || probe.context == 0) best = &probe;
  }
  return best;
}

bool make_events(Probe &probe, std::uint32_t context) {
  if (probe.context == context) return true;
  probe.context = 0;
  if (REAL(cuEventCreate)(&probe.start, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
  if (REAL(cuEventCreate)(&probe.end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    REAL(cuEventDestroy_v2)(probe.start);
    return false;
  }
  probe.context = context;
  return true;
}

void release(Probes &probes, Probe &probe, region::DeviceUsage &device) {
  let_go(device, probe.held_ns);
  probe.cost->under_way.fetch_sub(1, memory_order_relaxed);
  if (probe.first) probes.learning.fetch_sub(1, memory_order_relaxed);
  probes.busy.fetch_sub(1, memory_order_relaxed);
  probe.state.store(Probe::free, memory_order_release);
}

}  // namespace

Probe *open_probe(Probes &probes, const runtime::Place &place, Cost &cost, const Decision &decision, CUstream stream) {
  if (place.serial == 0) return nullptr;
  const TryLock lock(probes.taken);
  Probe *probe = lock ? find_free(probes, place.serial) : nullptr;
  if (probe == nullptr || !make_events(*probe, place.serial)) return nullptr;
  probe->host.was_idle = REAL(cuStreamQuery)(stream) == CUDA_SUCCESS;
  probe->host.opened_ns = monotonic_ns();
  if (REAL(cuEventRecord)(probe->start, stream) != CUDA_SUCCESS) return nullptr;
  probe->host.recorded_ns = monotonic_ns();
  probe->cost = &cost;
  probe->charged_ns = decision.charged_ns;
  probe->dev = static_cast<unsigned>(place.dev);
  probe->held_ns = decision.held_ns;
  probe->alone = decision.alone;
  probe->first = cost.estimate_ns.load(memory_order_relaxed) == 0;
  cost.under_way.fetch_add(1, memory_order_relaxed);
  if (probe->first) probes.learning.fetch_add(1, memory_order_relaxed);
  probes.busy.fetch_add(1, memory_order_relaxed);
  probe->state.store(Probe::open, memory_order_relaxed);
  probe->host.idle = REAL(cuEventQuery)(probe->start) == CUDA_SUCCESS;
  probe->host.ready_ns = monotonic_ns();
  return probe;
}

void close_probe(Probes &probes, Probe &probe, region::DeviceUsage &device, bool launched, CUstream stream) {
  probe.host.launched_ns = monotonic_ns();
  if (launched && REAL(cuEventRecord)(probe.end, stream) == CUDA_SUCCESS) {
    probe.host.closed_ns = monotonic_ns();
    probe.state.store(Probe::under_way, memory_order_release);
  } else {
    release(probes, probe, device);
  }
}

bool read_probes(Probes &probes, const runtime::Place &place, Costs &costs, region::DeviceUsage &device,
                 std::uint32_t percent) {
  if (probes.busy.load(memory_order_relaxed) == 0) return false;
  const TryLock lock(probes.taken);
  if (!lock) return false;
  bool gave_back = false;
  for (Probe &probe : probes.all) {
    if (probe.state.load(memory_order_acquire) != Probe::under_way) continue;
    if (probe.context != place.serial) {
      // Asked only in the context at hand, which is there: another may be destroyed, and its events with it.
      if (probe.dev == static_cast<unsigned>(place.dev) && !runtime::context_is_open(probe.context)) {
        probe.context = 0;
        release(probes, probe, device);
      }
      continue;
    }
    const CUresult result = REAL(cuEventQuery)(probe.end);
    if (result == CUDA_ERROR_NOT_READY) continue;
    float elapsed_ms = 0;
    if (result == CUDA_SUCCESS && REAL(cuEventElapsedTime)(&elapsed_ms, probe.start, probe.end) == CUDA_SUCCESS) {
      const auto elapsed_ns = static_cast<std::uint64_t>(static_cast<double>(elapsed_ms > 0 ? elapsed_ms : 0) * 1e6);
      const std::uint64_t known = probe.cost->estimate_ns.load(memory_order_relaxed);
      gave_back |= learn(device, costs, *probe.cost,
                         {device_time(probe.host, elapsed_ns, known), probe.charged_ns, probe.alone, false}, percent);
    }
    release(probes, probe, device);
  }
  return gave_back;
}

}  // namespace vgpu::sm
