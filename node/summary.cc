#include "summary.h"

#include <cstdio>

#include "values.h"

namespace vgpu::node {

std::vector<std::string> summary_lines(const region::Snapshot &region, const std::string &whose, bool unused) {
  std::vector<std::string> lines;
  for (unsigned dev = 0; dev < region.ndev(); ++dev) {
    const region::DeviceSnapshot &device = region.device(dev);
    if (!unused && device.memory_peak == 0 && device.refused == 0) continue;
    const double percent = 100.0 * static_cast<double>(device.memory_peak) / static_cast<double>(device.memory_limit);
    char numbers[128];
    std::snprintf(numbers, sizeof numbers, " (%.0f %%), %llu allocation%s refused, %.1f s throttled", percent,
                  static_cast<unsigned long long>(device.refused), device.refused == 1 ? "" : "s",
                  static_cast<double>(device.throttled_ns) / 1e9);
    lines.push_back(whose + ", GPU " + device.identity.uuid + ": peak " + format_bytes(device.memory_peak) + " of " +
                    format_bytes(device.memory_limit) + numbers);
  }
  return lines;
}

}  // namespace vgpu::node
