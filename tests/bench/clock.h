// The one clock of all benchmarks.
#pragma once

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace bench {

inline constexpr std::uint64_t kMicrosecond = 1'000;
inline constexpr std::uint64_t kMillisecond = 1'000'000;
inline constexpr std::uint64_t kSecond = 1'000'000'000;

inline std::uint64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kSecond + static_cast<std::uint64_t>(time.tv_nsec);
}

inline timespec to_timespec(std::uint64_t ns) {
  return {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
}

inline void sleep_ns(std::uint64_t ns) {
  timespec left = to_timespec(ns);
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace bench
