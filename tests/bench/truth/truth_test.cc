// The device holds what the books say, and never more than the limit: every program that was seen otherwise, on a kind
// device and on one like hardware. truth_bench measures the same with more patience.
#include "cases.h"

namespace vgpu::truth {

void PrintTo(const Case &one, std::ostream *stream) { *stream << one.name; }

namespace {

// ---- the judge ------------------------------------------------------------------------------------------------------

TEST(JudgeTest, WhatACallTookIsOver) {
  Judge judge;
  judge.look({.limit = 100, .books = 100, .held = 100}, 1);
  EXPECT_EQ(judge.over_bytes(), 0u);
  judge.look({.limit = 100, .books = 100, .held = 130}, 2);
  judge.look({.limit = 100, .books = 100, .held = 100}, 3);
  EXPECT_EQ(judge.over_bytes(), 30u);
  EXPECT_EQ(judge.launch_over_bytes(), 0u);
}

TEST(JudgeTest, WhatLaunchesBroughtIsOverForAsLongAsTheBooksDoNotHaveIt) {
  Judge judge;
  judge.look({.limit = 100, .books = 90, .held = 95, .launched = 5}, 1'000'000'000);
  judge.look({.limit = 100, .books = 90, .held = 120, .launched = 30}, 2'000'000'000);
  judge.look({.limit = 100, .books = 90, .held = 120, .launched = 30}, 2'500'000'000);
  judge.look({.limit = 100, .books = 120, .held = 120, .launched = 30}, 3'000'000'000);
  EXPECT_EQ(judge.over_bytes(), 0u);
  EXPECT_EQ(judge.launch_over_bytes(), 20u);
  EXPECT_EQ(judge.growth_bytes(), 25u);
  EXPECT_DOUBLE_EQ(judge.launch_over_seconds(), 0.5);
}

TEST(JudgeTest, WhatIsGrantedOnTopOfALaunchIsOver) {
  Judge judge;
  judge.look({.limit = 100, .books = 90, .held = 90}, 1);
  judge.look({.limit = 100, .books = 90, .held = 120, .launched = 30}, 2);
  judge.look({.limit = 100, .books = 100, .held = 137, .launched = 30}, 3);
  EXPECT_EQ(judge.launch_over_bytes(), 30u);
  EXPECT_EQ(judge.over_bytes(), 7u);
}

TEST(JudgeTest, NothingIsJudgedDuringACall) {
  Judge judge;
  judge.look_during_call({.limit = 100, .books = 100, .held = 130});
  EXPECT_EQ(judge.over_bytes(), 0u);
  EXPECT_EQ(judge.over_in_call_bytes(), 30u);
}

TEST(JudgeTest, ThreeIsAllThatMayBeWasted) {
  constexpr std::uint64_t kMiB = Judge::kMiB;
  const auto wasted = [](std::uint64_t books, std::uint64_t held, unsigned ranks) {
    Judge judge;
    judge.rest({.limit = 0, .books = books * kMiB, .held = held * kMiB}, ranks);
    return judge.waste_percent();
  };
  EXPECT_DOUBLE_EQ(wasted(132, 100, 1), 3);
  EXPECT_DOUBLE_EQ(wasted(134, 100, 2), 3);
  EXPECT_DOUBLE_EQ(wasted(10300, 10000, 1), 3);
  EXPECT_DOUBLE_EQ(wasted(10600, 10000, 1), 6);
  EXPECT_EQ(wasted(90, 100, 1), 0);
}

// ---- the cases ------------------------------------------------------------------------------------------------------

class TruthTest : public testing::TestWithParam<std::tuple<Case, const char *>> {};

TEST_P(TruthTest, TheDeviceIsNeverOverTheLimit) {
  const auto &[one, profile] = GetParam();
  Manner manner;
  manner.node = "profile=" + std::string(profile) + ";";
  manner.context_known = std::string(profile) == "hardware";  // the bench tries both ways on both
  const Judge judge = run_case(one, manner);
  EXPECT_EQ(judge.over_bytes(), 0u) << judge.over_bytes() / kMiB << " MiB over the limit";
  EXPECT_LE(judge.launch_over_bytes(), judge.growth_bytes()) << "launches went on while over the limit";
  EXPECT_LE(judge.launch_over_seconds(), 1) << judge.launch_over_bytes() / kMiB << " MiB that launches brought";
  EXPECT_LE(judge.unused_bytes() / kMiB, one.unused_mib) << "MiB of the limit could not be had";
}

INSTANTIATE_TEST_SUITE_P(All, TruthTest,
                         testing::Combine(testing::ValuesIn(cases().begin(), cases().end()),
                                          testing::Values("ideal", "hardware")),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace vgpu::truth
