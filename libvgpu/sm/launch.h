// What a launch hook does: pay for the launch, if need be after a wait, and now and then measure it.
//
// A thread pays from its purse; that is all that happens to most launches. When the purse is empty it takes the next piece
// of the job's budget, and while there is none it waits, holding nothing. meter.h decides, this carries it out.
#pragma once

#include "measure.h"
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

// Before and after one launch in the current context.
class Launch {
 public:
  Launch() = default;
  Launch(const Work &work, CUstream stream) : stream_(stream) {
    if (!pay_from_purse(work)) {
      pay(work);
    } else if (__builtin_expect(is_deferred(), 0)) {
      open_deferred(work);
    }
  }
  CUresult finish(CUresult result) {
    if (probe_ != nullptr) close(result == CUDA_SUCCESS);
    return result;
  }

 private:
  static bool pay_from_purse(const Work &work);
  static bool is_deferred();
  [[gnu::noinline]] void open_deferred(const Work &work);
  [[gnu::noinline]] void pay(const Work &work);
  [[gnu::noinline]] void close(bool launched);

  CUstream stream_ = nullptr;
  Probe *probe_ = nullptr;
};

// Around a call in which the thread waits for the device.
void before_waiting();
void after_waiting();

}  // namespace vgpu::sm
