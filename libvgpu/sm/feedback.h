// The feedback loop of the limiter: compares what the job was charged with what NVML says it used, and learns by how
// much costs are off.
//
// NVML is late, reports whole percents of each process, and counts a long kernel in one window or in the next. So a
// difference counts only where these cannot explain it. And it may not speak of the job's processes at all, or by numbers
// that are not theirs: what it does not say is unknown, never 0.
#pragma once

#include <cstdint>

namespace vgpu::sm {

// What NVML said of the window up to `to_ns`, of all processes of the job together, at least one of them. It reports the
// last window in which each process was busy at all: asked more rarely than windows end, it leaves some out.
struct Observation {
  std::uint64_t to_ns = 0;  // on the clock of charges, CLOCK_MONOTONIC
  unsigned percent = 0;
  unsigned processes = 0;
  std::uint64_t launch_ns = 0;  // what a launch typically costs
  bool shared = false;          // with other jobs
};

class Feedback {
 public:
  // How much time must have been compared before the ratio may change. Less: single windows decide, and what rounding
  // did to one of them moves the ratio. With 0.2 s, bursty jobs get 1.7 points too much in the model (0.5 with this).
  // More: costs that are off stay so for longer, 6.7 s with 5 s, 3.7 s with this.
  static constexpr std::uint64_t kLeastSpanNs = 2'000'000'000;
  // How long a ratio is believed without NVML's word. Absent, what was learned from other jobs' kernels, or from an answer
  // that was not about this job, would stay for good. Shorter than NVML's lag and a pause of its answers, a second or two:
  // a ratio that is right comes and goes.
  static constexpr std::uint64_t kUnheardNs = 10'000'000'000;

  // With every tick: what the job has been charged so far, without the ratio.
  void note_charged(std::uint64_t now_ns, std::uint64_t charged_ns);
  // Each of the two returns the ratio to use from now on. Without an answer that is the old one, until the job has
  // computed for kUnheardNs without any: then it fades to 1.
  std::uint64_t observe(const Observation &seen, std::uint64_t now_ns, std::uint64_t ratio);
  std::uint64_t without_answer(std::uint64_t ratio) const;
  // How long the job has computed since NVML last spoke of it.
  std::uint64_t unheard_ns() const { return unheard_ns_; }
  // Costs or the ratio have changed: what was compared before says nothing of them.
  void forget(std::uint64_t now_ns);
  void reset() { *this = {}; }

 private:
  // How many ticks back charges are remembered, to be compared with what NVML says late: 64 ticks are 7.7 s. It must
  // reach beyond NVML's lag, 1 s in the tests, and a window. Fewer, 4: most answers are too old to be compared, and
  // costs that are off by half are corrected after 11 instead of 4 s in the model. More is only memory of each process
  // and device.
  static constexpr unsigned kHistory = 64;
  struct Point {
    std::uint64_t at_ns;
    std::uint64_t charged_ns;
  };

  // When note_charged() was last called before this tick.
  std::uint64_t previous_tick_ns() const { return noted_ < 2 ? 0 : history_[(noted_ - 2) % kHistory].at_ns; }
  // False: longer ago than the history reaches.
  bool charged_at(std::uint64_t at_ns, double *charged_ns) const;

  Point history_[kHistory] = {};
  unsigned noted_ = 0;
  std::uint64_t unheard_ns_ = 0;
  std::uint64_t seen_to_ns_ = 0;
  std::uint64_t window_ns_ = 0;  // the shortest time between two observations; 0: none yet
  unsigned observed_ = 0;
  std::uint64_t ignore_before_ns_ = 0;  // older observations are of an older ratio
  // What was compared since then, and by how much NVML may be wrong about it.
  double span_ns_ = 0, busy_ns_ = 0, charged_ns_ = 0, doubt_ns_ = 0;
};

}  // namespace vgpu::sm
