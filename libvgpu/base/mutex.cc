#include "mutex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace vgpu {

namespace {
constexpr timespec kMoment = {0, 100'000};  // more than anybody holds such a lock, unless it was preempted
constexpr unsigned kYields = 4;
}  // namespace

[[gnu::cold, gnu::noinline]] void FastMutex::wait() {
  for (unsigned yields = 0; yields < kYields; ++yields) {
    sched_yield();
    if (held_.exchange(1, std::memory_order_acquire) == 0) return;
  }
  waiting_.fetch_add(1, std::memory_order_relaxed);
  while (held_.exchange(1, std::memory_order_acquire) != 0) {
    syscall(SYS_futex, &held_, FUTEX_WAIT_PRIVATE, 1, &kMoment, nullptr, 0);
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

[[gnu::cold, gnu::noinline]] void FastMutex::wake() {
  syscall(SYS_futex, &held_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace vgpu
