// How much of a device's time a job had, from the words of its SM limiter: known where launches are held to a share, and
// as good as the limiter's own idea of what they cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "region/region.h"
#include "sm/words.h"

namespace vgpu {

// The limiter's words at one instant.
struct SmReading {
  std::uint64_t charged_ns;
  std::uint64_t busy_until_ns;
  double ratio;  // of what is charged, what the device really takes
  std::uint64_t taken_ns;

  // What was let through and is not done. Of the job's own word: no more than its limiter would believe.
  double ahead_ns() const {
    constexpr std::uint64_t kMost = 600'000'000'000;
    return busy_until_ns > taken_ns ? static_cast<double>(std::min(busy_until_ns - taken_ns, kMost)) : 0;
  }
};

inline std::optional<SmReading> read_sm(const Snapshot &region, unsigned dev) {
  const DeviceSnapshot &device = region.device(dev);
  if (region.job().launch_hooks == 0 || device.sm_percent >= 100) return {};
  const double ratio = static_cast<double>(sm::TrimWord::unpack(device.trim).ratio) / sm::TrimWord::kOne;
  return SmReading{device.charged_ns, device.busy_until_ns, ratio, region.taken_ns()};
}

inline double share_of(double busy_ns, double elapsed_ns) {
  return elapsed_ns > 0 ? std::clamp(busy_ns / elapsed_ns, 0.0, 1.0) : 0;
}

// Between two readings, of 1. A kernel that runs all the time in between was charged before the first.
inline double sm_share(const SmReading &from, const SmReading &to) {
  const auto charged = static_cast<std::int64_t>(to.charged_ns - from.charged_ns);
  const double done = static_cast<double>(charged) * to.ratio + from.ahead_ns() - to.ahead_ns();
  return share_of(done, static_cast<double>(to.taken_ns - from.taken_ns));
}

// Since the beginning, of 1.
inline double sm_share(const SmReading &now, double elapsed_s) {
  return share_of(static_cast<double>(now.charged_ns) * now.ratio - now.ahead_ns(), elapsed_s * 1e9);
}

}  // namespace vgpu
