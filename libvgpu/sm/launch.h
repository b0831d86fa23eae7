// libvgpu/sm holds a job to its share of GPU time, by making launches wait. This is what launch hooks call.
//
// It goes one way: hook -> pay -> credit -> budget -> wait. A hook (metered.h) calls pay(), which spends the thread's
// credit; that is all that happens to most launches. When the credit does not suffice, a Launch takes the next batch of
// the job's budget (meter.h decides, bucket.h holds it), and while there is none it waits (wait.h), holding nothing.
// Now and then a launch is measured (launch_timer.h), which teaches costs.h what to charge; its rank
// may be the one that compares what was charged with what NVML says (utilisation_check.h, election.h, feedback.h).
#pragma once

#include "captures.h"
#include "launch_timer.h"
#include "runtime/runtime.h"

namespace vgpu::sm {

// What is launched: a function or an executable graph, and its size.
struct Work {
  const void *function;
  std::uint64_t blocks;
  std::uint64_t threads;  // 0: unknown, or a graph
};

struct Process;

// Whether the driver shows the process only one device. Then all its launches are on that, in whatever context.
bool sees_one_device();

// With what a thread pays without asking the driver for its context: the process sees only one device, and it is the
// job's.
struct FastPath {
  LaunchCredit *credit;  // null: not this way
  Costs *costs;          // of this process; a forked child finds it empty
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit FastPath fast_path;

// Spends the thread's credit on the only device. True: the launch is paid for. Calls nothing.
[[gnu::always_inline]] inline bool spend_on_fast_path(const Work &work) {
  if (fast_path.credit == nullptr || captures.load(std::memory_order_relaxed) != 0) return false;
  const Cost *cost = fast_path.costs->find_in_home_slot(work.function, work.blocks, work.threads);
  return cost != nullptr && spend(*fast_path.credit, fast_path.credit->dev, *cost);
}

// Spends the thread's credit on the device of the current context.
bool spend_in_context(const Work &work);
// Before a launch. False: it is one of the few that need a Launch around them.
inline bool pay(const Work &work) { return spend_on_fast_path(work) || spend_in_context(work); }

// Before and after a launch that pay() did not pay for.
class Launch {
 public:
  Launch() = default;
  [[gnu::noinline]] Launch(const Work &work, CUstream stream);
  CUresult finish(CUresult result) {
    if (timer_ != nullptr) stop(result == CUDA_SUCCESS);
    return result;
  }

 private:
  void start_deferred(Process &state, const runtime::Place &place, const Cost &cost);
  void wait_for_budget(Process &state, const runtime::Place &place, Cost &cost, LaunchCredit &credit);
  [[gnu::noinline]] void stop(bool launched);

  CUstream stream_ = nullptr;
  LaunchTimer *timer_ = nullptr;
  bool first_launch_ = false;  // of its function
};

// Around a call in which the thread waits for the device: the credit goes back before it, timers are read after it.
void before_synchronize();
void after_synchronize();

}  // namespace vgpu::sm
