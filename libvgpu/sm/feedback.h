// Compares what the job was charged with what NVML says it used, and learns by how much costs are off.
//
// NVML is late, speaks in whole percent for each process, and sees a long kernel in one window or in the next. So a
// difference counts only where it is beyond what these explain, and only by how much it is beyond.
#pragma once

#include <cstdint>

namespace vgpu::sm {

// What NVML said of its windows up to `to_ns`, of all processes of the job together. It tells of the last window in which
// each process was busy at all: who looks more rarely than windows end misses some.
struct Observation {
  std::uint64_t to_ns = 0;  // on the clock of charges, CLOCK_MONOTONIC
  unsigned percent = 0;
  unsigned processes = 0;
  std::uint64_t launch_ns = 0;  // what a launch typically costs
  bool shared = false;          // with other jobs
};

class Feedback {
 public:
  static constexpr std::uint64_t kSpanNs = 2'000'000'000;

  // With every tick: what the job has been charged so far, uncorrected.
  void note_charged(std::uint64_t now_ns, std::uint64_t charged_ns);
  // The ratio from now on.
  std::uint64_t observe(const Observation &seen, std::uint64_t now_ns, std::uint64_t ratio);
  // What was seen so far tells of other costs.
  void forget(std::uint64_t now_ns);
  void reset() { *this = {}; }

 private:
  static constexpr unsigned kHistory = 64;
  struct Point {
    std::uint64_t at_ns;
    std::uint64_t charged_ns;
  };

  // When the look before this one was.
  std::uint64_t looked_before() const { return noted_ < 2 ? 0 : history_[(noted_ - 2) % kHistory].at_ns; }
  // False: too long ago.
  bool charged_at(std::uint64_t at_ns, double *charged_ns) const;

  Point history_[kHistory] = {};
  unsigned noted_ = 0;
  std::uint64_t seen_to_ns_ = 0;
  std::uint64_t window_ns_ = 0;  // the shortest time between two observations; 0: none yet
  unsigned observed_ = 0;
  std::uint64_t ignore_before_ns_ = 0;  // older observations tell of an older ratio
  double span_ns_ = 0, busy_ns_ = 0, charged_ns_ = 0, doubt_ns_ = 0;
};

}  // namespace vgpu::sm
