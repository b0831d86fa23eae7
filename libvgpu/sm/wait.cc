#include "wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace vgpu::sm {

namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

}  // namespace

void wait_until(const region::HalfWord &generation, std::uint32_t seen, std::uint64_t until_ns) {
  const timespec deadline = {static_cast<time_t>(until_ns / kSecondNs), static_cast<long>(until_ns % kSecondNs)};
  const int saved = errno;
  // Absolute: a wait that a signal interrupts does not become longer.
  syscall(SYS_futex, &generation, FUTEX_WAIT_BITSET, seen, &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
  errno = saved;
}

void wake_all(const region::HalfWord &generation) {
  syscall(SYS_futex, &generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace vgpu::sm
