// The limiter on a made-up device (model.h): all that the goals are about, in all combinations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "mixes.h"

namespace vgpu::sm::test {
namespace {

constexpr double kOvershoot = 2;    // points
constexpr double kEfficiency = 95;  // percent

// A sanitizer, which takes ten times as long, has seen all there is to see in a part of it.
#ifdef __SANITIZE_ADDRESS__
const std::vector<unsigned> kRanks = {2, 8};
const std::vector<std::uint64_t> kLags = {400 * kMs};
constexpr unsigned kMixes = 60;
#else
const std::vector<unsigned> kRanks = {1, 2, 4, 8};
const std::vector<std::uint64_t> kLags = {170 * kMs, 400 * kMs, kSecond};
constexpr unsigned kMixes = 600;
#endif

struct Kernels {
  const char *name;
  std::vector<std::uint64_t> durations;
};
const Kernels kKernels[] = {{"20us", {20 * kUs}},
                            {"200us", {200 * kUs}},
                            {"2ms", {2 * kMs}},
                            {"20ms", {20 * kMs}},
                            {"mix", {20 * kUs, 200 * kUs, 2 * kMs, 20 * kMs}}};

Program program_of(const std::string &kind, const Kernels &kernels) {
  Program program;
  program.kernels = kernels.durations;
  if (kind == "bursty") program.work_ns = program.pause_ns = 20 * kMs;
  if (kind == "streams") program.streams = 4;
  if (kind == "graphs") {
    program.per_graph = 4;
    for (std::uint64_t &duration : program.kernels) duration /= program.per_graph;
  }
  return program;
}

class Product : public testing::TestWithParam<const char *> {};

TEST_P(Product, EveryCombinationHolds) {
  double overshoot = -100, efficiency = 1000;
  unsigned count = 0;
  for (const Kernels &kernels : kKernels) {
    for (const unsigned ranks : kRanks) {
      const Program program = program_of(GetParam(), kernels);
      const double free = simulate({{{100, ranks, program}}})[0].percent;
      for (const unsigned cap : {10u, 20u, 50u, 80u, 90u}) {
        for (const std::uint64_t lag : kLags) {
          const JobOutcome job = simulate({{{cap, ranks, program}}, lag})[0];
          // Ranks whose pauses come to fall together want less than they did without a limit: who never waits, has all it wants.
          const double wanted = job.waits_per_second == 0 ? job.percent : free;
          const double over = job.percent - cap, reached = 100 * job.percent / std::min<double>(cap, wanted);
          EXPECT_TRUE(over <= kOvershoot && reached >= kEfficiency)
              << kernels.name << ", " << ranks << " ranks, " << cap << "%, lag " << lag / kMs << " ms: " << job.percent
              << "%, alone " << free << "%";
          overshoot = std::max(overshoot, over);
          efficiency = std::min(efficiency, reached);
          ++count;
        }
      }
    }
  }
  std::printf("%s: %u combinations, overshoot at most %.2f points, efficiency at least %.2f %%\n", GetParam(), count,
              overshoot, efficiency);
}
INSTANTIATE_TEST_SUITE_P(Programs, Product, testing::Values("busy", "bursty", "streams", "graphs"),
                         [](const auto &info) { return std::string(info.param); });

// Kernels nobody chose, each taking now longer, now shorter. Never too much; and nearly always enough.
struct Tally {
  unsigned under_95 = 0, under_90 = 0, over_3 = 0;
  double worst = 1000, most = -100;
};
Tally run_mixes(std::uint64_t seed, unsigned count, const Habits &device) {
  Tally tally;
  std::mt19937_64 random(seed);
  for (unsigned round = 0; round < count; ++round) {
    Scenario mix = random_mix(random, round);
    mix.device = device;
    const unsigned cap = mix.jobs[0].percent;
    const double percent = simulate(mix)[0].percent, reached = 100 * percent / cap;
    tally.under_95 += reached < 95;
    tally.under_90 += reached < 90;
    tally.over_3 += percent > cap + 3;
    tally.worst = std::min(tally.worst, reached);
    tally.most = std::max(tally.most, percent - cap);
  }
  std::printf(
      "seed %llu, %u mixes: %u under 95 %%, %u under 90 %%, %u over by more than 3; from %.1f %% to %+.2f points\n",
      static_cast<unsigned long long>(seed), count, tally.under_95, tally.under_90, tally.over_3, tally.worst,
      tally.most);
  return tally;
}
// Another one in each run, so that nothing is tuned to some seeds; VGPU_MODEL_SEED repeats it.
std::uint64_t drawn_seed() {
  const char *given = std::getenv("VGPU_MODEL_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

TEST(Mixes, NearlyEveryOneHolds) {
  for (const std::uint64_t seed : {std::uint64_t{7}, std::uint64_t{8}, drawn_seed()}) {
    const Tally tally = run_mixes(seed, kMixes, kIdeal);
    EXPECT_LE(tally.under_95, 3u) << "repeat with VGPU_MODEL_SEED=" << seed;
    EXPECT_EQ(tally.under_90, 0u) << "repeat with VGPU_MODEL_SEED=" << seed;
    EXPECT_EQ(tally.over_3, 0u) << "repeat with VGPU_MODEL_SEED=" << seed;
  }
}

TEST(Mixes, OnADeviceLikeHardwareAsWell) {
  const std::uint64_t seed = drawn_seed();
  const Tally tally = run_mixes(seed, kMixes / 2, kHardware);
  EXPECT_LE(tally.under_95, 2u) << "repeat with VGPU_MODEL_SEED=" << seed;
  EXPECT_EQ(tally.under_90, 0u) << "repeat with VGPU_MODEL_SEED=" << seed;
  EXPECT_EQ(tally.over_3, 0u) << "repeat with VGPU_MODEL_SEED=" << seed;
}

// ---- on a device like hardware, where NVML tells nothing ------------------------------------------------------------

class Hardware : public testing::Test {
 protected:
  static JobOutcome run(const Program &program, unsigned cap, std::uint64_t warm_up_ns = kSecond,
                        std::uint64_t measured_ns = 5 * kSecond) {
    Scenario scenario = {{{cap, 1, program}}};
    scenario.device = kHardware;
    scenario.nvml = false;
    scenario.warm_up_ns = warm_up_ns;
    scenario.measured_ns = measured_ns;
    return simulate(scenario)[0];
  }
  static void expect_holds(const char *what, const Program &program, double least_percent = 97) {
    const double free = run(program, 100).percent;
    for (const unsigned cap : {20u, 50u, 80u}) {
      const double percent = run(program, cap).percent;
      EXPECT_LE(percent, cap + 1) << what << ", " << cap << "%";
      EXPECT_GE(100 * percent, least_percent * std::min<double>(cap, free)) << what << ", " << cap << "%";
    }
  }
};

TEST_F(Hardware, KernelsThatOverlapAreChargedOnce) {
  expect_holds("four streams", {.kernels = {200 * kUs}, .occupancy = {0.1}, .streams = 4});
}

TEST_F(Hardware, KernelsAsShortAsTheirLaunch) {
  expect_holds("5 us", {.kernels = {5 * kUs}, .occupancy = {0.1}, .host_ns = 5'800});
}

TEST_F(Hardware, EachLaunchIsWaitedFor) { expect_holds("20 us", {.kernels = {20 * kUs}, .sync_each = true}, 95); }

TEST_F(Hardware, LaunchesThatAreFarApart) {
  expect_holds("1.5 ms every 4", {.kernels = {1500 * kUs}, .host_ns = 4 * kMs});
  expect_holds("20 us every 50", {.kernels = {20 * kUs}, .host_ns = 50 * kUs}, 95);
}

TEST_F(Hardware, SizesWithoutNumber) { expect_holds("20,000 sizes", {.kernels = {200 * kUs}, .most_blocks = 20'000}); }

TEST_F(Hardware, AHostThatIsInterrupted) { expect_holds("200 us", {.kernels = {200 * kUs}, .interrupted = 50}, 92); }

TEST_F(Hardware, CopiesAreNotTakenForKernels) {
  expect_holds("as long as kernels", {.kernels = {500 * kUs}, .copy_ns = 500 * kUs}, 65);
}

TEST_F(Hardware, LoadingCodeIsNotCharged) {
  const Program program = {.kernels = std::vector<std::uint64_t>(40, kMs), .load_ns = 20 * kMs};
  const std::uint64_t free = run(program, 100, 0, 2 * kSecond).launches;
  ASSERT_GE(free, 40u);
  EXPECT_GE(run(program, 10, 0, 3 * kSecond).launches, 80u) << "0.8 s of loading, and kernels at a tenth of 2 s";
}

// Its own cost divided by the share, and what was owed: nothing that grows.
TEST_F(Hardware, NoLaunchWaitsForLong) {
  EXPECT_LE(run({.kernels = {kMs}}, 50, 0).longest_wait_ns, 60 * kMs);
  EXPECT_LE(run({.kernels = {20 * kMs}}, 50, 0).longest_wait_ns, 110 * kMs);
}

TEST(Ranks, WithTheSameProgramGetTheSame) {
  for (const Kernels &kernels : kKernels) {
    Scenario scenario = {{{50, 4, program_of("busy", kernels)}}};
    scenario.measured_ns = 20 * kSecond;
    const JobOutcome job = simulate(scenario)[0];
    const auto [least, most] = std::minmax_element(job.by_rank.begin(), job.by_rank.end());
    EXPECT_LT(*most / *least, 1.35) << kernels.name << ": from " << *least << " to " << *most;
  }
}

// An elected rank that stops, or dies: its queue is done, and it never comes back.
TEST(Ranks, ThatStopLeaveTheirShareToTheOthers) {
  for (const Kernels &kernels : kKernels) {
    Scenario scenario = {{{50, 4, program_of("busy", kernels)}}};
    scenario.warm_up_ns = 3 * kSecond;
    int leader = -1;
    scenario.happenings = {{2 * kSecond,
                            [&](Scenario::Control &control) {
                              leader = std::max(control.leader(0), 0);
                              control.stop(0, static_cast<unsigned>(leader));
                            }},
                           {2 * kSecond + 900 * kMs, [&](Scenario::Control &control) {
                              EXPECT_NE(control.leader(0), leader) << kernels.name << ": not replaced in three ticks";
                            }}};
    const JobOutcome job = simulate(scenario)[0];
    EXPECT_NEAR(job.percent, 50, 2) << kernels.name;
    EXPECT_EQ(job.by_rank[static_cast<unsigned>(leader)], 0) << kernels.name;
  }
}

TEST(Limit, ThatChangesHoldsAtOnce) {
  Scenario scenario = {{{20, 2, program_of("busy", kKernels[2])}}};
  scenario.happenings = {{3 * kSecond, [](Scenario::Control &control) { control.set_percent(0, 80); }},
                         {4 * kSecond, [](Scenario::Control &control) { control.set_percent(0, 10); }}};
  const std::vector<double> steps = simulate(scenario)[0].over_time;
  const auto mean = [&](std::size_t from, std::size_t to) {
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += steps[i];
    return sum / static_cast<double>(to - from);
  };
  EXPECT_NEAR(mean(10, 30), 20, 2);
  EXPECT_NEAR(mean(31, 40), 80, 3);
  EXPECT_NEAR(mean(41, 59), 10, 2);
}

// What events measure is off by half, as with kernels that overlap: NVML puts it right.
TEST(Costs, ThatAreOffAreCorrectedByNvml) {
  for (const double off : {0.5, 2.0}) {
    Scenario scenario = {{{50, 1, program_of("busy", kKernels[1])}}};
    scenario.costs_are_off = off;
    scenario.warm_up_ns = 8 * kSecond;
    EXPECT_NEAR(simulate(scenario)[0].percent, 50, 2.5) << off;
  }
}

TEST(Waiting, IsRare) {
  const JobOutcome job = simulate({{{10, 1, program_of("busy", kKernels[0])}}})[0];
  EXPECT_LT(job.waits_per_second, 500);
}

}  // namespace
}  // namespace vgpu::sm::test
