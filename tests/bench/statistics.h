// Medians of runs, and percentiles of many millions of latencies.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace bench {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  if (values.size() % 2 != 0) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle))) / 2;
}

// Counts by value, 64 steps to every power of two: at most 1.6 % off. No allocation and no pointer, so that each
// process can fill its own in shared memory and the parent adds them up.
class LatencyHistogram {
 public:
  void add(std::uint64_t ns) { ++counts_[bucket(ns)]; }

  void add(const LatencyHistogram &other) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  }

  // The smallest latency that at least `fraction` of all do not exceed.
  std::uint64_t percentile(double fraction) const {
    std::uint64_t total = 0;
    for (const std::uint64_t count : counts_) total += count;
    const double wanted = fraction * static_cast<double>(total);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen != 0 && static_cast<double>(seen) >= wanted) return highest(i);
    }
    return 0;
  }

 private:
  static constexpr unsigned kStepBits = 6;
  static constexpr std::size_t kSteps = std::size_t{1} << kStepBits;
  static constexpr std::size_t kBuckets = (64 - kStepBits + 1) * kSteps;

  static std::size_t bucket(std::uint64_t ns) {
    if (ns < kSteps) return static_cast<std::size_t>(ns);
    const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 1 - kStepBits;
    return (shift + 1) * kSteps + static_cast<std::size_t>((ns >> shift) & (kSteps - 1));
  }
  static std::uint64_t highest(std::size_t bucket) {
    if (bucket < kSteps) return bucket;
    const std::size_t shift = bucket / kSteps - 1;
    return ((kSteps + bucket % kSteps + 1) << shift) - 1;
  }

  std::uint64_t counts_[kBuckets] = {};
};

// The least of several runs.
class Fastest {
 public:
  void add(double value) { value_ = std::min(value_, value); }
  double value() const { return value_; }

 private:
  double value_ = std::numeric_limits<double>::infinity();
};

}  // namespace bench
