// libvgpu/sm holds a job to its share of GPU time, by making launches wait. This is what launch hooks call.
//
// It goes one way: hook -> pay -> credit -> budget -> wait. A hook (metered.h) calls pay(), which spends the thread's
// credit; that is all that happens to most launches. When the credit does not suffice, a Launch takes the next batch of
// the job's budget (meter.h decides, bucket.h holds it), and while there is none it waits (wait.h), holding nothing.
// What a batch of launches really took is charged when the device is done with it (marks.h, batch.h); single launches
// teach costs.h how many may follow each other before that. The thread's rank may be the one that compares what was charged
// with what NVML says (utilisation_check.h, election.h, feedback.h).
#pragma once

#include "captures.h"
#include "marks.h"
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

// What a thread has on one device.
struct ThreadOnDevice {
  LaunchCredit credit;
  BatchStreams streams;   // of the open batch
  MarksInUse marks;       // of the open batch
  std::uint32_t context;  // of the open batch, its serial number; kNoContext if it has none
};

// With what a thread pays without asking the driver for its context: the process sees only one device, and it is the
// job's.
struct FastPath {
  ThreadOnDevice *thread;  // null: not this way
  Costs *costs;            // of this process; a forked child finds it empty
  ThreadOnDevice *last;    // where the thread last had a Launch; null only if `costs` is
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit FastPath fast_path;

// Spends the thread's credit on the only device. True: the launch is paid for. Calls nothing.
[[gnu::always_inline]] inline bool spend_on_fast_path(const Work &work, CUstream stream) {
  ThreadOnDevice *thread = fast_path.thread;
  if (thread == nullptr || captures.load(std::memory_order_relaxed) != 0 || !thread->streams.has_recent(stream))
    return false;
  const Cost *cost = fast_path.costs->find_in_home_slot(Costs::key(work.function, work.blocks, work.threads));
  return cost != nullptr && spend(thread->credit, *cost);
}

// Spends the thread's credit on the device of the current context. The key is the launch's in Costs: in a register, where
// Work would have to be in memory.
bool spend_in_context(std::uint64_t key, CUstream stream);
// Before a launch. False: it is one of the few that need a Launch around them.
inline bool pay(const Work &work, CUstream stream) {
  return spend_on_fast_path(work, stream) ||
         spend_in_context(Costs::key(work.function, work.blocks, work.threads), stream);
}

// Before and after a launch that pay() did not pay for.
class Launch {
 public:
  Launch() = default;
  [[gnu::noinline]] Launch(const Work &work, CUstream stream);
  CUresult finish(CUresult result) {
    if (thread_ != nullptr) launched(result == CUDA_SUCCESS);
    return result;
  }

 private:
  void wait_for_budget(Process &state, const runtime::Place &place, const LaunchKey &key, CUstream stream);
  [[gnu::noinline]] void launched(bool successfully);

  ThreadOnDevice *thread_ = nullptr;  // null: it opened no batch
  unsigned dev_ = 0;
  bool ends_ = false;  // the batch does, behind this launch
  std::uint64_t called_ns_ = 0;
};

// What a call waits for.
enum class Awaited : std::uint8_t { context, stream, event };
// Around a call in which the thread waits for the device: the thread's batch ends and its credit goes back before it, and
// marks are read after it.
void before_synchronize(Awaited awaited, CUstream stream);
void after_synchronize();

// What was known by a handle may be known no more: an executable graph that was changed or destroyed, or all functions,
// because a module went.
void doubt_cost(const void *graph);
void doubt_costs();

}  // namespace vgpu::sm
