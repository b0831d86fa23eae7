// How much of a device's time a job had, from the words of its SM limiter: known where launches are held to a share, and
// as good as the limiter's own idea of what they cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "region/region.h"
#include "region/sm_words.h"

namespace vgpu::node {

// The limiter's words at one instant.
struct SmReading {
  std::uint64_t charged_ns;
  double ratio;  // of what is charged, what the device really takes
  std::uint64_t tat;
  double limit;  // of 1
  std::uint64_t taken_ns;

  // What was let through ahead of its time: the job waits until it has made up for it. In the job's own word: no more than
  // its limiter would believe.
  double debt_ns() const {
    return tat > taken_ns ? limit * static_cast<double>(std::min(tat - taken_ns, region::kLargestDebtNs)) : 0;
  }
};

inline std::optional<SmReading> read_sm(const region::Snapshot &region, unsigned dev) {
  const region::DeviceSnapshot &device = region.device(dev);
  if (region.job().launch_hooks == 0 || device.sm_percent >= 100) return {};
  const double ratio = static_cast<double>(region::TrimWord::unpack(device.trim).ratio) / region::TrimWord::kOne;
  return SmReading{device.charged_ns, ratio, device.tat, device.sm_percent / 100.0, region.taken_ns()};
}

inline double share_of(double busy_ns, double elapsed_ns) {
  return elapsed_ns > 0 ? std::clamp(busy_ns / elapsed_ns, 0.0, 1.0) : 0;
}

// Between two readings, of 1. A kernel that is longer than the time between them counts for as long as the job pays for it.
inline double sm_share(const SmReading &from, const SmReading &to) {
  const auto charged = static_cast<std::int64_t>(to.charged_ns - from.charged_ns);
  const double used = static_cast<double>(charged) * to.ratio + from.debt_ns() - to.debt_ns();
  return share_of(used, static_cast<double>(to.taken_ns - from.taken_ns));
}

// Of a job that has ended, of 1.
inline double sm_share(const SmReading &at_end, double elapsed_s) {
  return share_of(static_cast<double>(at_end.charged_ns) * at_end.ratio, elapsed_s * 1e9);
}

}  // namespace vgpu::node
