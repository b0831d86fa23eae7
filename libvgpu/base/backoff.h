#pragma once

#include <time.h>

namespace vgpu {

// Some tens of cycles during which this core asks nothing of the others. Not `yield` on ARM: most cores take it for a
// nop, and a loop of nops steps aside for nobody.
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// Waiting for a writer that is nearly always done at once: five pauses, then sleeps of 1, 10 and 100 us.
class Backoff {
 public:
  static constexpr unsigned kPauses = 5;
  static constexpr unsigned kTries = kPauses + 3;

  void wait() {
    if (tries_++ < kPauses) {
      cpu_pause();
      return;
    }
    const timespec pause = {0, sleep_ns_};
    nanosleep(&pause, nullptr);
    if (sleep_ns_ < 100'000) sleep_ns_ *= 10;
  }
  unsigned tries() const { return tries_; }

 private:
  unsigned tries_ = 0;
  long sleep_ns_ = 1'000;
};

}  // namespace vgpu
