#pragma once

#include <time.h>

#include <cerrno>
#include <cstdint>

namespace vgpu {

// Milliseconds of CLOCK_MONOTONIC, from the vDSO's coarse clock: good enough for seconds, and a few nanoseconds cheap.
inline std::uint64_t coarse_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

// Nanoseconds of CLOCK_MONOTONIC.
inline std::uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// To a point in time of monotonic_ns(), so that a program full of signals does not shorten it.
inline void sleep_until(std::uint64_t due_ns) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const timespec due = {static_cast<time_t>(due_ns / kSecond), static_cast<long>(due_ns % kSecond)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr) == EINTR) {
  }
}

}  // namespace vgpu
