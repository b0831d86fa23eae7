// The SM limiter on the simulated GPU, in real time. What a job achieved is the time that the simulated device gave it.
//
//   sm_bench             all figures, and sm.tsv for the documentation
//   sm_bench split|leader|launch|cpu           only these
//   sm_bench CAP KERNELS RANKS KIND LAG_MS     one combination
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "../bench_region.h"
#include "../clock.h"
#include "../figure.h"
#include "../statistics.h"
#include "node.h"
#include "pairwise.h"

namespace bench {

namespace {

constexpr std::uint64_t kSecond = 1000 * kMillisecond;
constexpr std::uint64_t kStart = 300 * kMillisecond;  // until all ranks have their contexts
constexpr std::uint64_t kWarmUp = kSecond;
constexpr std::uint64_t kMeasure = 5 * kSecond;
constexpr std::uint64_t kMeasureFree = kSecond;
constexpr std::uint64_t kStep = 100 * kMillisecond;

struct Combination {
  unsigned cap;
  SmProgram program;
  unsigned ranks;
  unsigned lag_ms;
};

struct Outcome {
  double free = 0;    // percent of the device without a limit
  double capped = 0;  // and with it
  double overshoot(const Combination &of) const { return capped - of.cap; }
  double efficiency(const Combination &of) const { return 100 * capped / std::min<double>(of.cap, free); }
};

void wait_until(std::uint64_t instant) {
  const std::uint64_t now = now_ns();
  if (now < instant) sleep_ns(instant - now);
}

// Percent of the device that each job has between now + `skip` and `measure` later.
std::vector<double> shares(const std::vector<const SmJob *> &jobs, std::uint64_t skip, std::uint64_t measure) {
  wait_until(now_ns() + skip);
  const std::uint64_t from = now_ns();
  const std::vector<SmNode::Busy> before = SmNode::busy();
  wait_until(from + measure);
  const std::vector<SmNode::Busy> after = SmNode::busy();
  std::vector<double> result;
  for (const SmJob *job : jobs) result.push_back(job->share(before, after));
  return result;
}

class Bench {
 public:
  // As many at a time as there are lanes.
  std::vector<Outcome> measure(const std::vector<Combination> &all) const {
    std::vector<Outcome> outcomes(all.size());
    for (std::size_t from = 0; from < all.size(); from += SmNode::kLanes) {
      const std::size_t to = std::min<std::size_t>(from + SmNode::kLanes, all.size());
      for (const bool limited : {false, true}) {
        const std::uint64_t measure = limited ? kMeasure : kMeasureFree;
        const std::uint64_t end = now_ns() + kStart + kWarmUp + measure + kSecond;
        std::vector<std::unique_ptr<SmJob>> jobs;
        std::vector<const SmJob *> pointers;
        for (std::size_t i = from; i < to; ++i) {
          const Combination &one = all[i];
          const unsigned device = SmNode::device(static_cast<unsigned>(i - from), one.lag_ms);
          jobs.push_back(std::make_unique<SmJob>(node_, device, limited ? one.cap : 100, one.ranks, one.program, end));
          pointers.push_back(jobs.back().get());
        }
        const std::vector<double> got = shares(pointers, kStart + kWarmUp, measure);
        for (const SmJob *job : pointers) job->check_ranks();
        for (std::size_t i = from; i < to; ++i) (limited ? outcomes[i].capped : outcomes[i].free) = got[i - from];
      }
    }
    return outcomes;
  }

  void run(const std::string &part) const {
    if (part == "split") return split();
    if (part == "leader") return leader_loss();
    if (part == "launch") return launch_cost();
    if (part == "cpu") return throttled_cpu();
    throw Failure("no such part: %s", part.c_str());
  }

  void run() const {
    table_ = std::fopen("sm.tsv", "w");
    if (table_ == nullptr) throw Failure("sm.tsv cannot be written");
    combinations();
    split();
    leader_loss();
    launch_cost();
    throttled_cpu();
    over_time();
    std::fclose(table_);
  }

 private:
  void combinations() const {
    const unsigned caps[] = {10, 20, 50, 80, 90}, ranks[] = {1, 2, 4, 8};
    const char *kernels[] = {"20us", "200us", "2ms", "20ms", "mix"}, *kinds[] = {"busy", "bursty", "streams", "graphs"};
    std::vector<Combination> all;
    for (const std::vector<unsigned> &row : pairwise({5, 5, 4, 4, 3}, 40)) {
      all.push_back({caps[row[0]], {kernels[row[1]], kinds[row[3]]}, ranks[row[2]], SmNode::kLagsMs[row[4]]});
    }
    const std::vector<Outcome> outcomes = measure(all);
    double overshoot = -100, efficiency = 1000;
    std::printf("%4s %-6s %-8s %5s %7s %9s %9s %10s %11s\n", "cap", "kernel", "program", "ranks", "lag ms", "without",
                "achieved", "overshoot", "efficiency");
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Combination &one = all[i];
      const double over = outcomes[i].overshoot(one), reached = outcomes[i].efficiency(one);
      std::printf("%4u %-6s %-8s %5u %7u %9.1f %9.2f %10.2f %11.1f\n", one.cap, one.program.kernels.c_str(),
                  one.program.kind.c_str(), one.ranks, one.lag_ms, outcomes[i].free, outcomes[i].capped, over, reached);
      std::fprintf(table_, "combination\t%u\t%s\t%s\t%u\t%u\t%.1f\t%.2f\t%.2f\t%.1f\n", one.cap,
                   one.program.kernels.c_str(), one.program.kind.c_str(), one.ranks, one.lag_ms, outcomes[i].free,
                   outcomes[i].capped, over, reached);
      overshoot = std::max(overshoot, over);
      efficiency = std::min(efficiency, reached);
    }
    print_figure("sm.overshoot_max_points", overshoot, "points", 2);
    print_least("sm.efficiency_min_percent", efficiency, "%", 95);
  }

  // Two jobs on one device, when each has found out what its launches cost among the other's.
  void split() const {
    double worst = 0;
    for (const char *kernels : {"200us", "2ms"}) {
      const std::uint64_t end = now_ns() + kStart + 4 * kSecond + kMeasure + kSecond;
      const unsigned device = SmNode::device(0, 170);
      const SmJob small(node_, device, 30, 1, {kernels, "busy"}, end),
          large(node_, device, 70, 2, {kernels, "busy"}, end);
      const std::vector<double> got = shares({&small, &large}, kStart + 4 * kSecond, kMeasure);
      std::printf("two jobs of %s kernels, 30 and 70: %.2f and %.2f\n", kernels, got[0], got[1]);
      worst = std::max({worst, std::fabs(got[0] - 30), std::fabs(got[1] - 70)});
    }
    print_figure("sm.split_error_points", worst, "points", 2);
  }

  // What becomes of the others' share when the elected rank is stopped, or killed.
  void leader_loss() const {
    double worst = 0;
    for (const int number : {SIGSTOP, SIGKILL}) {
      const std::uint64_t end = now_ns() + 30 * kSecond;
      SmJob job(node_, SmNode::device(0, 170), 50, 4, {"2ms", "busy"}, end);
      wait_until(now_ns() + kStart + 2 * kSecond);
      const int leader = job.leader();
      if (leader < 0) throw Failure("no rank was elected");
      job.signal(static_cast<unsigned>(leader), number);
      // What it had queued is done first, or dropped.
      const double got = shares({&job}, kSecond, 3 * kSecond)[0];
      const int next = job.leader();
      std::printf("after %s of the elected rank (%d, then %d) the others have %.2f of 50\n",
                  number == SIGSTOP ? "SIGSTOP" : "SIGKILL", leader, next, got);
      if (next == leader) throw Failure("it was not replaced");
      worst = std::max(worst, std::fabs(got - 50));
    }
    print_figure("sm.leader_loss_points", worst, "points", 5);
  }

  // A core that shares its units with another is at times half as fast, for seconds, whatever it runs. So: the fastest of
  // several rounds of each, in turns.
  void launch_cost() const {
    const std::map<std::string, std::string> one_device = {{"CUDA_VISIBLE_DEVICES", SmNode::uuid(0)}};
    Fastest native, limited, native_of_many, limited_of_many, unlimited;
    for (unsigned round = 0; round < 9; ++round) {
      native.add(Worker({"launches"}, one_device).result());
      limited.add(with_limit(90, {"launches"}, one_device));
      native_of_many.add(Worker({"launches"}, {}).result());
      limited_of_many.add(with_limit(90, {"launches"}));
      unlimited.add(with_limit(100, {"launches"}));
    }
    std::printf("a launch takes %.1f ns\n", native.value());
    print_figure("sm.launch_added_ns", limited.value() - native.value(), "ns", 15);
    print_figure("sm.launch_added_of_many_ns", limited_of_many.value() - native_of_many.value(), "ns", 15);
    std::printf("without a limit, in a program linked with the driver: %.1f ns more\n",
                unlimited.value() - native_of_many.value());
  }

  void throttled_cpu() const {
    print_figure("sm.throttled_cpu_percent", with_limit(10, {"cpu", std::to_string(now_ns() + 4 * kSecond)}), "%", 1);
  }

  double with_limit(unsigned percent, const std::vector<std::string> &arguments,
                    const std::map<std::string, std::string> &more = {}) const {
    vgpu::region::DeviceSpec device;
    std::snprintf(device.identity.uuid, sizeof device.identity.uuid, "%s", SmNode::uuid(0).c_str());
    device.identity.memory_bytes = device.memory_limit = std::uint64_t{16} << 30;
    device.sm_percent = percent;
    vgpu::region::RegionSpec spec;
    spec.uid = getuid();
    spec.launch_hooks = percent < 100;
    spec.ndev = 1;
    spec.devices = &device;
    check(vgpu::region::Region::create(node_.directory().c_str(), "one", spec));
    std::map<std::string, std::string> environment = limited_environment(node_.directory() + "/one");
    environment.insert(more.begin(), more.end());
    const double result = Worker(arguments, environment).result();
    check(vgpu::region::Region::remove(node_.directory().c_str(), "one"));
    return result;
  }

  // For the plot: a job whose limit is changed twice while it runs.
  void over_time() const {
    const std::uint64_t end = now_ns() + kStart + 10 * kSecond;
    SmJob job(node_, SmNode::device(0, 170), 50, 2, {"2ms", "busy"}, end);
    const std::uint64_t start = now_ns();
    std::vector<SmNode::Busy> before;
    for (unsigned step = 1; step <= 90; ++step) {
      if (step == 31) job.set_percent(20);
      if (step == 61) job.set_percent(80);
      wait_until(start + step * kStep);
      const double now = 1e-9 * static_cast<double>(now_ns() - start);
      const std::vector<SmNode::Busy> after = SmNode::busy();
      std::fprintf(table_, "time\t%.2f\t%.2f\t%u\n", now, job.share(before, after),
                   step < 31   ? 50
                   : step < 61 ? 20
                               : 80);
      before = after;
    }
  }

  SmNode node_;
  mutable FILE *table_ = nullptr;
};

}  // namespace

}  // namespace bench

int main(int argc, char **argv) {
  using namespace bench;
  if (argc > 2 && std::strcmp(argv[1], "work") == 0) return sm_work({argv + 2, argv + argc});
  return bench::run("sm_bench", [&] {
    const Bench bench;
    if (argc == 2) return bench.run(argv[1]);
    if (argc != 6) return bench.run();
    const Combination one = {static_cast<unsigned>(std::stoul(argv[1])),
                             {argv[2], argv[4]},
                             static_cast<unsigned>(std::stoul(argv[3])),
                             static_cast<unsigned>(std::stoul(argv[5]))};
    const Outcome outcome = bench.measure({one})[0];
    std::printf("without a limit %.1f, with it %.2f: overshoot %.2f, efficiency %.1f\n", outcome.free, outcome.capped,
                outcome.overshoot(one), outcome.efficiency(one));
  });
}
