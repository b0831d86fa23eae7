#include "launch_timer.h"

#include <algorithm>

#include "captures.h"
#include "driver/table.h"
#include "first_launch.h"
#include "wait.h"

namespace vgpu::sm {

namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

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

// A timer that has events in this context, else one that has none, else one of another context, whose two events are
// lost.
LaunchTimer *find_free(LaunchTimers &timers, std::uint32_t context) {
  LaunchTimer *best = nullptr;
  for (LaunchTimer &timer : timers.all) {
    if (timer.state.load(memory_order_acquire) != LaunchTimer::free) continue;
    if (timer.context == context) return &timer;
    if (best == nullptr || timer.context == 0) best = &timer;
  }
  return best;
}

bool make_events(LaunchTimer &timer, std::uint32_t context) {
  if (timer.context == context) return true;
  timer.context = 0;
  if (REAL(cuEventCreate)(&timer.start, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
  if (REAL(cuEventCreate)(&timer.end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    REAL(cuEventDestroy_v2)(timer.start);
    return false;
  }
  timer.context = context;
  return true;
}

void release(LaunchTimers &timers, LaunchTimer &timer, region::DeviceUsage &device) {
  release_hold(device, timer.held_ns);
  timer.cost->under_way.fetch_sub(1, memory_order_relaxed);
  if (timer.first) timers.learning.fetch_sub(1, memory_order_relaxed);
  timers.busy.fetch_sub(1, memory_order_relaxed);
  timer.state.store(LaunchTimer::free, memory_order_release);
}

}  // namespace

LaunchTimer *start_timer(LaunchTimers &timers, const runtime::Place &place, Cost &cost, const Decision &decision,
                         CUstream stream) {
  if (place.serial == 0 || !takes_events(stream)) return nullptr;
  const RelaxedCapture relaxed;
  const TryLock lock(timers.locked);
  LaunchTimer *timer = lock ? find_free(timers, place.serial) : nullptr;
  if (timer == nullptr || !make_events(*timer, place.serial)) return nullptr;
  timer->host.idle_before_start = REAL(cuStreamQuery)(stream) == CUDA_SUCCESS;
  timer->host.start_called_ns = monotonic_ns();
  if (REAL(cuEventRecord)(timer->start, stream) != CUDA_SUCCESS) return nullptr;
  timer->host.start_returned_ns = monotonic_ns();
  timer->cost = &cost;
  timer->charged_ns = decision.charged_ns;
  timer->dev = static_cast<unsigned>(place.dev);
  timer->held_ns = decision.held_ns;
  timer->alone = decision.alone;
  timer->first = cost.estimate_ns.load(memory_order_relaxed) == 0;
  cost.under_way.fetch_add(1, memory_order_relaxed);
  if (timer->first) timers.learning.fetch_add(1, memory_order_relaxed);
  timers.busy.fetch_add(1, memory_order_relaxed);
  timer->state.store(LaunchTimer::started, memory_order_relaxed);
  timer->host.idle_before_launch = REAL(cuEventQuery)(timer->start) == CUDA_SUCCESS;
  timer->host.launch_called_ns = monotonic_ns();
  return timer;
}

bool waited_for_host(const LaunchTimer &timer) {
  if (monotonic_ns() - timer.host.launch_called_ns < kLongCallNs) return false;
  const RelaxedCapture relaxed;
  return REAL(cuEventQuery)(timer.start) == CUDA_SUCCESS;
}

void stop_timer(LaunchTimers &timers, LaunchTimer &timer, region::DeviceUsage &device, bool launched, CUstream stream) {
  timer.host.launch_returned_ns = monotonic_ns();
  const RelaxedCapture relaxed;
  if (launched && REAL(cuEventRecord)(timer.end, stream) == CUDA_SUCCESS) {
    timer.host.end_returned_ns = monotonic_ns();
    timer.state.store(LaunchTimer::pending, memory_order_release);
  } else {
    release(timers, timer, device);
  }
}

bool read_timers(LaunchTimers &timers, const runtime::Place &place, Costs &costs, region::DeviceUsage &device,
                 std::uint32_t percent) {
  if (timers.busy.load(memory_order_relaxed) == 0) return false;
  const TryLock lock(timers.locked);
  if (!lock) return false;
  const RelaxedCapture relaxed;
  bool gave_back = false;
  for (LaunchTimer &timer : timers.all) {
    if (timer.state.load(memory_order_acquire) != LaunchTimer::pending) continue;
    if (timer.context != place.serial) {
      // Events are queried only in the current context, which exists: another may be destroyed, and its events with it.
      if (timer.dev == static_cast<unsigned>(place.dev) && !runtime::context_is_open(timer.context)) {
        timer.context = 0;
        release(timers, timer, device);
      }
      continue;
    }
    const CUresult result = REAL(cuEventQuery)(timer.end);
    if (result == CUDA_ERROR_NOT_READY) continue;
    float elapsed_ms = 0;
    if (result == CUDA_SUCCESS && REAL(cuEventElapsedTime)(&elapsed_ms, timer.start, timer.end) == CUDA_SUCCESS) {
      const auto elapsed_ns = static_cast<std::uint64_t>(static_cast<double>(elapsed_ms > 0 ? elapsed_ms : 0) * 1e6);
      const std::uint64_t known = timer.cost->estimate_ns.load(memory_order_relaxed);
      gave_back |= learn(device, costs, *timer.cost,
                         {device_time(timer.host, elapsed_ns, known), timer.charged_ns, timer.alone, false}, percent);
    }
    release(timers, timer, device);
  }
  return gave_back;
}

}  // namespace vgpu::sm
