#include "costs.h"

#include <algorithm>
#include <cstdlib>

namespace vgpu::sm {

namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

// A measurement counts as at most this many times the mean: now and then other work was on the device as well, and its
// 20 ms would be a thousand launches of 20 us. Absent, a single one would make such a kernel cost more than 1 ms
// (costs_test). Smaller: kernels whose duration really varies that much are charged too little. Larger: each one moves
// the mean further.
constexpr std::uint64_t kOutlierFactor = 4;
// So many launches are charged the first guess without any of them being measured; then it is taken for something that
// cannot be measured. Absent, a launch whose events fail would be charged 25 ms for ever, and the program stand nearly
// still. Smaller: a thread that could not mark a few launches would pay the last guess for a kernel of any length.
constexpr std::uint32_t kMostGuesses = 16;
// What a launch is charged that cannot be measured. A middling kernel, which NVML's ratio then corrects within its
// bounds, a sixteenth to sixteen times (feedback.cc): right for what really takes 12 us to 3 ms, a range that a smaller
// or larger value would move.
constexpr std::uint64_t kUnmeasuredNs = 200'000;
// The mean becomes a moving one after this many. Smaller: the mean of a kernel whose duration varies drifts. Larger: it
// follows a kernel that became slower more slowly.
constexpr std::uint32_t kMeanWeight = 16;
// Among other ranks of the job, of which each may have the device for a while before the launch, the estimate follows a
// low quantile instead, the quarter: down by at most a fourth at a time, up by at most a twelfth. With the mean, ranks
// whose measurements met more of the others' work would launch less: in the model, of four ranks with the same kernels
// one gets a tenth of another's time. Larger steps follow each measurement, smaller ones correct a first one that was
// late for too long.
constexpr std::uint64_t kQuantileDown = 4, kQuantileUp = 12;
// How much of typical_ns() the latest measurement is: one part in this many. feedback.cc takes from it how much a launch
// at the edge of a window can shift. With 1 it would be the last measured launch, whichever that was; larger, it does
// not follow a program that goes on to other kernels.
constexpr std::uint32_t kTypicalWeight = 8;

// Early measurements count in full, later ones less: at first an average, then a slowly moving one.
std::uint64_t moved(std::uint64_t mean, std::uint64_t value, std::uint32_t count, std::uint32_t most) {
  const std::int64_t difference = static_cast<std::int64_t>(value) - static_cast<std::int64_t>(mean);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(mean) + difference / std::min(count, most));
}

// By so many size classes.
std::uint64_t scaled(std::uint64_t ns, int classes) {
  constexpr double kQuarter = 1.189207115;  // of an octave: the fourth root of 2
  auto result = static_cast<double>(ns);
  for (; classes > 0; --classes) result *= kQuarter;
  for (; classes < 0; ++classes) result /= kQuarter;
  return static_cast<std::uint64_t>(std::min(result, static_cast<double>(kLargestCostNs)));
}

}  // namespace

Cost *Costs::find(std::uint64_t key) {
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Cost &cost = slot(key, probe);
    if (cost.key.load(memory_order_acquire) == key) return &cost;
  }
  return nullptr;
}

Cost &Costs::find_or_insert(std::uint64_t key, std::uint64_t now_ns) {
  Cost *cost = find(key);
  if (cost == nullptr && !locked_.exchange(true, memory_order_acquire)) {
    cost = find(key);
    for (unsigned probe = 0; cost == nullptr && probe < kProbes; ++probe) {
      if (slot(key, probe).key.load(memory_order_relaxed) == 0) cost = &slot(key, probe);
    }
    if (cost == nullptr) {
      cost = &slot(key, 0);
      for (unsigned probe = 1; probe < kProbes; ++probe) {
        if (slot(key, probe).used_ns.load(memory_order_relaxed) < cost->used_ns.load(memory_order_relaxed))
          cost = &slot(key, probe);
      }
    }
    if (cost->key.load(memory_order_relaxed) != key) {
      cost->settled_ns.store(0, memory_order_relaxed);
      cost->estimate_ns.store(0, memory_order_relaxed);
      cost->samples.store(0, memory_order_relaxed);
      cost->guesses.store(0, memory_order_relaxed);
      // Release: who finds the key finds nothing known of it, and not what was known of another.
      cost->key.store(key, memory_order_release);
    }
    locked_.store(false, memory_order_release);
  }
  if (cost == nullptr) cost = &slot(key, 0);
  cost->used_ns.store(now_ns, memory_order_relaxed);
  return *cost;
}

std::uint64_t Costs::estimate(const Cost &cost, const LaunchKey &launch) const {
  const std::uint64_t known = cost.estimate_ns.load(memory_order_relaxed);
  if (known != 0) return known;
  const Family &family = const_cast<Costs *>(this)->family_slot(launch.function);
  if (family.function.load(memory_order_acquire) != launch.function) return 0;
  int nearest = 0;
  std::uint64_t nearest_ns = 0;
  for (const std::atomic<std::uint64_t> &word : family.sizes) {
    const std::uint64_t size = word.load(memory_order_relaxed);
    const int apart = static_cast<int>(launch.size) - static_cast<int>(size & 0xff);
    if (size == 0 || (nearest_ns != 0 && std::abs(apart) >= std::abs(nearest))) continue;
    nearest = apart;
    nearest_ns = size >> 8;
  }
  if (nearest_ns == 0) return 0;
  return std::clamp(scaled(nearest_ns, nearest), kLeastCostNs, kLargestCostNs);
}

std::uint64_t Costs::guess(const Cost &cost) {
  return cost.guesses.load(memory_order_relaxed) < kMostGuesses ? kFirstGuessNs : kUnmeasuredNs;
}

void Costs::learn_family(const LaunchKey &launch, std::uint64_t cost_ns) {
  Family &family = family_slot(launch.function);
  if (family.function.load(memory_order_relaxed) != launch.function) {
    family.function.store(0, memory_order_relaxed);
    for (std::atomic<std::uint64_t> &size : family.sizes) size.store(0, memory_order_relaxed);
    family.function.store(launch.function, memory_order_release);
  }
  const std::uint64_t word = cost_ns << 8 | (launch.size & 0xff);
  for (std::atomic<std::uint64_t> &size : family.sizes) {
    const std::uint64_t known = size.load(memory_order_relaxed);
    if (known == 0 || (known & 0xff) != (launch.size & 0xff)) continue;
    size.store(word, memory_order_relaxed);
    return;
  }
  const std::uint32_t next = family.next.load(memory_order_relaxed);
  family.sizes[next % Family::kSizes].store(word, memory_order_relaxed);
  family.next.store(next + 1, memory_order_relaxed);
}

void Costs::learn(const LaunchKey &launch, std::uint64_t took_ns, Company company) {
  std::uint64_t took = std::clamp(took_ns, kLeastCostNs, kLargestCostNs);
  const std::uint64_t typical = typical_ns_.load(memory_order_relaxed);
  typical_ns_.store(typical == 0 ? took : moved(typical, took, kTypicalWeight, kTypicalWeight), memory_order_relaxed);

  Cost *cost = find(launch.key);
  if (cost == nullptr) return;
  const std::uint32_t samples = cost->samples.load(memory_order_relaxed);
  std::uint64_t least = cost->least_ns.load(memory_order_relaxed);
  if (samples % kWindow == 0) {
    cost->least_before_ns.store(samples == 0 ? took : least, memory_order_relaxed);
    least = took;
  }
  least = std::min(least, took);
  cost->least_ns.store(least, memory_order_relaxed);
  cost->samples.store(samples + 1, memory_order_relaxed);

  std::uint64_t estimate;
  if (company == Company::jobs) {
    estimate = std::min(least, cost->least_before_ns.load(memory_order_relaxed));
  } else if (samples == 0) {
    estimate = took;
  } else if (company == Company::ranks) {
    const std::uint64_t known = cost->estimate_ns.load(memory_order_relaxed);
    estimate = std::clamp(took, known - known / kQuantileDown, known + known / kQuantileUp);
  } else {
    const std::uint64_t mean = cost->estimate_ns.load(memory_order_relaxed);
    estimate = moved(mean, std::min(took, kOutlierFactor * mean), samples + 1, kMeanWeight);
  }
  estimate = std::max(estimate, kLeastCostNs);
  cost->estimate_ns.store(estimate, memory_order_relaxed);
  cost->settled_ns.store(estimate, memory_order_relaxed);
  cost->guesses.store(0, memory_order_relaxed);
  learn_family(launch, estimate);
}

void Costs::doubt(std::uint64_t key) {
  Cost *cost = find(key);
  if (cost == nullptr) return;
  cost->settled_ns.store(0, memory_order_relaxed);
  cost->samples.store(0, memory_order_relaxed);
}

void Costs::doubt_all() {
  for (Cost &cost : entries_) {
    if (cost.key.load(memory_order_relaxed) == 0) continue;
    cost.settled_ns.store(0, memory_order_relaxed);
    cost.samples.store(0, memory_order_relaxed);
  }
}

}  // namespace vgpu::sm
