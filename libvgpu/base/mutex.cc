#include "mutex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace vgpu {

// Whoever has slept leaves the mark of somebody asleep, because others may be: one wake too many, at most.
[[gnu::cold]] void FastMutex::wait() {
  while (state_.exchange(kWanted, std::memory_order_acquire) != kFree) {
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kWanted, nullptr, nullptr, 0);
  }
}

[[gnu::cold]] void FastMutex::wake() { syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

}  // namespace vgpu
