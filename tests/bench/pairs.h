// How fast pairs go: a pair is one reserve and one release of the same bytes.
//
// `attach(index)` runs in the process that will do the pairs and returns a callable that does one pair.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "clock.h"
#include "group.h"
#include "shared.h"
#include "statistics.h"

namespace bench {

inline constexpr std::uint64_t kPairBytes = 2 << 20;  // the granularity of a CUDA device allocation
inline constexpr unsigned kCrowd = 8;                 // the documents' node: 8 processes
inline constexpr unsigned kBatch = 64;                // pairs between two looks at the stop flag

inline unsigned usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&cores)));
}

// What a call (of a pair, or of anything else) costs this process alone: the median of many short slices. A slice in
// which the machine did something else tells nothing about the call; what can happen to single pairs,
// pair_percentile_crowd() tells.
template <class Call>
double ns_per_call(Call &&call, std::uint64_t duration, unsigned calls_per_slice = 512) {
  std::vector<double> slices;
  const std::uint64_t start = now_ns();
  for (std::uint64_t before = start; before - start < duration;) {
    for (unsigned i = 0; i < calls_per_slice; ++i) call();
    const std::uint64_t after = now_ns();
    slices.push_back(static_cast<double>(after - before) / calls_per_slice);
    before = after;
  }
  return median(std::move(slices));
}

struct CrowdStage {
  Gate gate;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> pairs{0};
  LatencyHistogram latencies[kCrowd];
};

template <class Attach, class Work>
std::uint64_t run_crowd(CrowdStage &stage, std::uint64_t duration, Attach attach, Work work) {
  Group group(kCrowd, [&](unsigned index) {
    auto pair = attach(index);
    stage.gate.pass();
    work(index, pair);
  });
  stage.gate.release(kCrowd);
  const std::uint64_t start = now_ns();
  sleep_ns(duration);
  stage.stop.store(true, std::memory_order_relaxed);
  const std::uint64_t end = now_ns();
  group.join();
  return end - start;
}

// What a pair costs a core while 8 processes do nothing else: wall time x cores in use / pairs of all processes.
// Were there no contention at all, it would equal ns_per_call().
template <class Attach>
double pair_ns_crowd(std::uint64_t duration, Attach attach) {
  Shared<CrowdStage> stage;
  const std::uint64_t wall = run_crowd(*stage, duration, attach, [&](unsigned, auto &pair) {
    std::uint64_t pairs = 0;
    while (!stage->stop.load(std::memory_order_relaxed)) {
      for (unsigned i = 0; i < kBatch; ++i) pair();
      pairs += kBatch;
    }
    stage->pairs.fetch_add(pairs);
  });
  const double cores = std::min(kCrowd, usable_cores());
  return static_cast<double>(wall) * cores / static_cast<double>(stage->pairs.load());
}

// Latency of single pairs of 8 processes at once, the clock and every preemption included.
template <class Attach>
double pair_percentile_crowd(double fraction, std::uint64_t duration, Attach attach) {
  Shared<CrowdStage> stage;
  run_crowd(*stage, duration, attach, [&](unsigned index, auto &pair) {
    std::uint64_t last = now_ns();
    while (!stage->stop.load(std::memory_order_relaxed)) {
      pair();
      const std::uint64_t now = now_ns();
      stage->latencies[index].add(now - last);
      last = now;
    }
  });
  for (unsigned i = 1; i < kCrowd; ++i) stage->latencies[0].add(stage->latencies[i]);
  return static_cast<double>(stage->latencies[0].percentile(fraction));
}

}  // namespace bench
