// A made-up device (model_device.h) with made-up ranks on a clock of their own, which run the limiter's very code: a
// discrete-event simulation, in which hours pass in seconds.
//
// What marks.cc and launch.cc do with the driver is imitated here; all that depends on numbers only is the library's.
// Threads wake late. NVML tells whole percents of windows that ended some time ago.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model_device.h"

namespace vgpu::sm::test {

inline constexpr std::uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;

struct Program {
  std::vector<std::uint64_t> kernels = {2 * kMs};  // durations; of several, each launch is one at random
  std::vector<double> occupancy = {};              // of each of them, the part of the device that it fills; empty: all
  unsigned streams = 1;
  unsigned per_graph = 1;      // kernels in a launch
  std::uint64_t work_ns = 0;   // not 0: this much is launched and waited for ...
  std::uint64_t pause_ns = 0;  // ... and then there is a pause
  double spread = 0;           // of durations of one and the same kernel: 0.5 is from half to one and a half
  bool sync_each = false;      // every launch is waited for
  std::uint64_t host_ns = 0;   // what the host does between two launches
  unsigned interrupted = 0;    // one launch in so many is followed by the host's absence of up to 4 ms; 0: none
  std::uint64_t load_ns = 0;   // what the first launch of each kernel takes the host
  std::uint64_t copy_ns = 0;   // of a copy behind each launch
  // Not 0: every launch has a number of blocks between 1 and this, at random, and takes time in proportion to it.
  std::uint64_t most_blocks = 0;
};

struct Job {
  unsigned percent = 100;
  unsigned ranks = 1;
  Program program;
};

struct Scenario {
  std::vector<Job> jobs;
  std::uint64_t nvml_lag_ns = 170 * kMs;
  bool nvml = true;  // it answers
  Habits device = kIdeal;
  std::uint64_t seed = 1;
  std::uint64_t warm_up_ns = kSecond;
  std::uint64_t measured_ns = 5 * kSecond;
  // What else happens: called once at each of these times, with the simulation to act on.
  class Control {
   public:
    virtual void stop(unsigned job, unsigned rank) = 0;
    virtual void set_percent(unsigned job, unsigned percent) = 0;
    virtual int leader(unsigned job) = 0;  // -1: none
   protected:
    ~Control() = default;
  };
  std::vector<std::pair<std::uint64_t, std::function<void(Control &)>>> happenings = {};
  double costs_are_off = 1;  // what is charged is this times what it should be
};

struct JobOutcome {
  double percent = 0;             // of the device, in the measured time
  std::vector<double> by_rank;    // the same
  std::vector<double> over_time;  // in steps of kStepNs from the start
  double waits_per_second = 0;    // of a rank
  std::uint64_t longest_wait_ns = 0;
  std::uint64_t launches = 0;
};
inline constexpr std::uint64_t kStepNs = 100 * kMs;

std::vector<JobOutcome> simulate(const Scenario &scenario);

}  // namespace vgpu::sm::test
