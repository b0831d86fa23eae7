#include "shared.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace bench {

static_assert(sizeof(Signal) == sizeof(std::uint32_t), "a Signal is the futex word itself");

void Signal::add_one() {
  value_.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Signal::wait_for(std::uint32_t at_least, std::uint64_t deadline) const {
  for (;;) {
    const std::uint32_t seen = value();
    if (seen >= at_least) return true;
    const std::uint64_t now = now_ns();
    if (now >= deadline) return false;
    const timespec left = to_timespec(deadline - now);
    syscall(SYS_futex, &value_, FUTEX_WAIT, seen, &left, nullptr, 0);
  }
}

}  // namespace bench
