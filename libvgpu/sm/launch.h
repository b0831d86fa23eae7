// What a launch hook does: pay for the launch, if need be after a wait, and now and then measure it.
//
// A thread pays from its purse; that is all that happens to most launches. When the purse is empty it takes the next piece
// of the job's budget, and while there is none it waits, holding nothing. meter.h decides, this carries it out.
#pragma once

#include "launch_timer.h"
#include "runtime/runtime.h"

namespace vgpu::sm {

// What is launched: a function or an executable graph, and how much of it.
struct Work {
  const void *function;
  std::uint64_t blocks;
  std::uint64_t threads;
};

// Streams of this process that are being captured, at most. While there are any, launches may be recordings.
extern std::atomic<std::uint32_t> captures;
void capture_begun();
void capture_ended();

struct Process;

// Whether the driver shows the process only one device. Then all its launches are there, in whatever context.
bool sees_one_device();

// Where a thread pays at once, because the process sees only one device and it is the job's.
struct Till {
  Purse *purse;  // null: elsewhere
  Costs *costs;  // of this process; a forked child finds it empty
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit Till till;

// Before a launch. True: the thread's purse has paid for it; that is all there is to most launches. Calls nothing.
[[gnu::always_inline]] inline bool pay_quickly(const Work &work) {
  if (till.purse == nullptr || captures.load(std::memory_order_relaxed) != 0) return false;
  const Cost *cost = till.costs->find_at_once(work.function, work.blocks, work.threads);
  return cost != nullptr && pay(*till.purse, till.purse->dev, *cost);
}

// The same in the current context, wherever that is. False: it is one of the few that take a Launch around them.
bool pay_in_context(const Work &work);
inline bool pay_from_purse(const Work &work) { return pay_quickly(work) || pay_in_context(work); }

// Before and after a launch that the purse did not pay for.
class Launch {
 public:
  Launch() = default;
  [[gnu::noinline]] Launch(const Work &work, CUstream stream);
  CUresult finish(CUresult result) {
    if (probe_ != nullptr) close(result == CUDA_SUCCESS);
    return result;
  }

 private:
  void open_deferred(Process &state, const runtime::Place &place, const Cost &cost);
  void pay(Process &state, const runtime::Place &place, Cost &cost, Purse &purse);
  [[gnu::noinline]] void close(bool launched);

  CUstream stream_ = nullptr;
  Probe *probe_ = nullptr;
};

// Around a call in which the thread waits for the device.
void before_waiting();
void after_waiting();

}  // namespace vgpu::sm
