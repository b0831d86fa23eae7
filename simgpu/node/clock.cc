#include "simgpu/node/clock.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace simgpu {
namespace {

constexpr uint64_t kLongestSleepNs = 5000000;

void futex(std::atomic<uint32_t> *word, int op, uint32_t value, const timespec *timeout) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), op, value, timeout, nullptr, 0);
}

timespec to_timespec(uint64_t ns) {
  return {static_cast<time_t>(ns / 1000000000u), static_cast<long>(ns % 1000000000u)};
}

}  // namespace

void advance_clock_to(ClockPage *clock, uint64_t ns) {
  uint64_t now = clock->virtual_ns.load(std::memory_order_relaxed);
  while (now < ns && !clock->virtual_ns.compare_exchange_weak(now, ns, std::memory_order_release)) continue;
  clock->changes.fetch_add(1, std::memory_order_release);
  futex(&clock->changes, FUTEX_WAKE, INT_MAX, nullptr);
}

void sleep_on_clock(ClockPage *clock, uint64_t until_ns) {
  if (clock->mode != ClockMode::kReal) {
    uint32_t seen = clock->changes.load(std::memory_order_acquire);
    timespec longest = to_timespec(kLongestSleepNs);
    if (clock->now_ns() < until_ns) futex(&clock->changes, FUTEX_WAIT, seen, &longest);
    return;
  }
  timespec until = to_timespec(std::min(until_ns, clock->now_ns() + kLongestSleepNs));
  // A thread's sleeps usually end up to 50 us late, which is long for a kernel.
  int slack = prctl(PR_GET_TIMERSLACK);
  prctl(PR_SET_TIMERSLACK, 1);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  if (slack > 0) prctl(PR_SET_TIMERSLACK, slack);
}

}  // namespace simgpu
