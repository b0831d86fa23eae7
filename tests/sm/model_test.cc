// The limiter on a made-up device (model.h): all that the goals are about, in all combinations.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "mixes.h"

namespace vgpu::sm::test {
namespace {

constexpr double kOvershoot = 2;    // points
constexpr double kEfficiency = 95;  // percent

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
    for (const unsigned ranks : {1u, 2u, 4u, 8u}) {
      const Program program = program_of(GetParam(), kernels);
      const double free = simulate({{{100, ranks, program}}})[0].percent;
      for (const unsigned cap : {10u, 20u, 50u, 80u, 90u}) {
        for (const std::uint64_t lag : {170 * kMs, 400 * kMs, kSecond}) {
          const JobOutcome job = simulate({{{cap, ranks, program}}, lag})[0];
          const double over = job.percent - cap, reached = 100 * job.percent / std::min<double>(cap, free);
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
TEST(Mixes, AnyMixHolds) {
  unsigned short_of = 0;
  std::mt19937_64 random(7);
  for (unsigned round = 0; round < 200; ++round) {
    const Scenario mix = random_mix(random, round);
    const unsigned cap = mix.jobs[0].percent;
    const double percent = simulate(mix)[0].percent;
    EXPECT_LE(percent, cap + kOvershoot) << "round " << round;
    EXPECT_GE(percent, cap * 0.91) << "round " << round;
    short_of += percent < cap * kEfficiency / 100;
  }
  EXPECT_LE(short_of, 12u) << "of 200";
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
