#include "pace.h"

#include <algorithm>

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

// Until so much was charged the pace is 1. Less: single batches decide how many launches follow.
constexpr float kLeastChargedNs = 10e6;
// A pace below this is not believed: work that seems free would flood the device before it is charged. More than eight
// kernels at a time still find room. Above 1 it makes up for costs that are too low; without a bound, a wild word would
// stop the job.
constexpr double kLeastPace = 0.05, kLargestPace = 2;

}  // namespace

double current_pace(const region::Word &pace) {
  const region::PaceWord sums = region::PaceWord::unpack(pace.load(memory_order_relaxed));
  if (sums.charged_ns < kLeastChargedNs) return 1;
  return std::clamp(static_cast<double>(sums.charged_ns) / std::max(static_cast<double>(sums.cost_ns), 1.0), kLeastPace,
                    kLargestPace);
}

region::PaceWord add_fading(region::Word &word, double charged_ns, double cost_ns, double fade_ns) {
  std::uint64_t seen = word.load(memory_order_relaxed);
  const auto keep = static_cast<float>(fade_ns / (fade_ns + cost_ns));
  for (;;) {
    region::PaceWord sums = region::PaceWord::unpack(seen);
    sums.charged_ns = sums.charged_ns * keep + static_cast<float>(charged_ns);
    sums.cost_ns = sums.cost_ns * keep + static_cast<float>(cost_ns);
    if (word.compare_exchange_weak(seen, sums.pack(), memory_order_relaxed)) return sums;
  }
}

}  // namespace vgpu::sm
