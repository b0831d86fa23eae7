// Learning what launches cost, and deciding with it.
#include "sm/costs.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "sm/meter.h"

namespace vgpu::sm::test {

using namespace region;
namespace {

constexpr std::uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000 * kMs;

class CostsTest : public testing::Test {
 protected:
  LaunchKey kernel(int number, std::uint64_t blocks = 1) const {
    return Costs::launch_key(&functions_[number], blocks, 256);
  }
  void measured(const LaunchKey &launch, std::uint64_t took, Company company = Company::none) {
    costs_->find_or_insert(launch.key, ++now_);
    costs_->learn(launch, took, company);
  }
  std::uint64_t estimate(const LaunchKey &launch) {
    return costs_->estimate(costs_->find_or_insert(launch.key, ++now_), launch);
  }
  bool spends(LaunchCredit &credit, const LaunchKey &launch) { return spend(credit, *costs_->find(launch.key)); }

  std::unique_ptr<Costs> costs_ = std::make_unique<Costs>();
  std::unique_ptr<DeviceUsage> device_ = std::make_unique<DeviceUsage>();
  std::unique_ptr<DeviceMore> more_ = std::make_unique<DeviceMore>();
  const JobDevice job_ = {*device_, more_->pace, more_->coverage};
  std::uint64_t now_ = 0;
  long functions_[8];
};

TEST_F(CostsTest, FunctionsAndOrdersOfMagnitudeAreDifferentLaunches) {
  EXPECT_EQ(kernel(0).key, kernel(0).key);
  EXPECT_NE(kernel(0).key, kernel(1).key);
  EXPECT_NE(kernel(0, 1).key, kernel(0, 2).key);
  EXPECT_EQ(kernel(0, 10'000).key, kernel(0, 10'100).key);
  EXPECT_NE(kernel(0, 10'000).key, kernel(0, 12'500).key);
  EXPECT_NE(Costs::key(&functions_[0], 10, 128), Costs::key(&functions_[0], 10, 256));
}

TEST_F(CostsTest, SizeClassesAreQuartersOfAnOctave) {
  EXPECT_EQ(size_class(0), size_class(1));
  EXPECT_EQ(size_class(8), size_class(4) + 4);
  EXPECT_EQ(size_class(5), size_class(4) + 1);
  EXPECT_EQ(size_class(std::uint64_t{1} << 40), 160u);
  for (std::uint64_t blocks = 1; blocks < 100'000; ++blocks) ASSERT_LE(size_class(blocks), size_class(blocks + 1));
}

// As inference with changing shapes has: each of them is known after a few.
TEST_F(CostsTest, TwentyThousandSizesFit) {
  for (std::uint64_t blocks = 1; blocks <= 20'000; ++blocks) measured(kernel(0, blocks), blocks * 100);
  measured(kernel(1), 30 * kUs);
  for (std::uint64_t blocks = 1; blocks <= 20'000; blocks += 7) {
    ASSERT_NEAR(static_cast<double>(estimate(kernel(0, blocks))), static_cast<double>(blocks * 100),
                static_cast<double>(blocks * 25))
        << blocks;
  }
  EXPECT_EQ(estimate(kernel(1)), 30 * kUs);
}

TEST_F(CostsTest, ANewSizeCostsAsMuchMoreAsItIsLarger) {
  measured(kernel(0, 64), 300 * kUs);
  EXPECT_EQ(estimate(kernel(0, 64)), 300 * kUs);
  EXPECT_NEAR(static_cast<double>(estimate(kernel(0, 256))), 1200.0 * kUs, kUs);
  EXPECT_NEAR(static_cast<double>(estimate(kernel(0, 16))), 75.0 * kUs, kUs);
  EXPECT_EQ(estimate(kernel(1, 64)), 0u);
}

TEST_F(CostsTest, TheNearestSizeCounts) {
  measured(kernel(0, 1), 10 * kUs);
  measured(kernel(0, 1 << 20), 10 * kMs);
  EXPECT_NEAR(static_cast<double>(estimate(kernel(0, 2))), 20.0 * kUs, kUs);
  EXPECT_NEAR(static_cast<double>(estimate(kernel(0, 1 << 19))), 5.0 * kMs, kUs);
}

TEST_F(CostsTest, WhatWasNotUsedForLongestGoes) {
  static long functions[100'000];
  const LaunchKey used = Costs::launch_key(&functions[0], 1, 0);
  measured(used, 30 * kUs);
  // Many times what the table holds. One of them is used all the time.
  for (const long &function : functions) {
    measured(Costs::launch_key(&function, 1, 0), 20 * kUs);
    costs_->find_or_insert(used.key, ++now_);
  }
  ASSERT_NE(costs_->find(used.key), nullptr);
  EXPECT_EQ(costs_->find(Costs::key(&functions[1], 1, 0)), nullptr);
  EXPECT_NE(costs_->find(Costs::key(&functions[99'999], 1, 0)), nullptr);
}

TEST_F(CostsTest, ARecycledHandleIsMeasuredAnew) {
  measured(kernel(0), 30 * kUs);
  measured(kernel(1), 40 * kUs);
  for (int i = 0; i < 20; ++i) measured(kernel(2), 50 * kUs);
  costs_->doubt(kernel(0).key);
  EXPECT_EQ(costs_->find(kernel(0).key)->settled_ns.load(), 0u);
  EXPECT_NE(costs_->find(kernel(1).key)->settled_ns.load(), 0u);
  costs_->doubt_all();
  EXPECT_EQ(costs_->find(kernel(2).key)->settled_ns.load(), 0u);
  measured(kernel(2), 5 * kMs);
  EXPECT_EQ(estimate(kernel(2)), 5 * kMs) << "whatever it was before";
}

TEST_F(CostsTest, AGuessNeverGrows) {
  const Cost &cost = costs_->find_or_insert(kernel(0).key, kSecond);
  EXPECT_EQ(Costs::guess(cost), kFirstGuessNs);
  Meter meter{};
  LaunchCredit credit;
  std::uint64_t now = 100 * kSecond, longest = 0;
  for (int launch = 0; launch < 40; ++launch) {
    const std::uint64_t came = now;
    Decision decision;
    while (!(decision = decide(job_, meter, *costs_, kernel(0), credit, 50, now)).go) now = decision.until_ns;
    longest = std::max(longest, now - came);
    open_batch(credit, decision);
    close_batch(credit);  // and no mark ever tells what it took
  }
  EXPECT_LE(longest, 2 * kFirstGuessNs) << "its own cost divided by the share";
}

TEST_F(CostsTest, WhatCannotBeMeasuredIsNotGuessedHighForEver) {
  Cost &cost = costs_->find_or_insert(kernel(0).key, kSecond);
  cost.guesses = 16;
  EXPECT_LT(Costs::guess(cost), kMs);
}

// Kernels that take now this long, now that long.
TEST_F(CostsTest, TheMeanCounts) {
  std::mt19937_64 random(1);
  double sum = 0;
  constexpr int kTimes = 2000;
  for (int i = 0; i < kTimes; ++i) {
    measured(kernel(0), 100 * kUs + random() % (800 * kUs));
    sum += static_cast<double>(estimate(kernel(0)));
  }
  EXPECT_NEAR(sum / kTimes, 500.0 * kUs, 20.0 * kUs);
}

TEST_F(CostsTest, AmongOtherJobsTheLeastCounts) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100; ++i)
    measured(kernel(0), 200 * kUs + (random() % 4 != 0 ? random() % (5 * kMs) : 0), Company::jobs);
  EXPECT_EQ(estimate(kernel(0)), 200 * kUs);
  // And it follows a kernel that became slower.
  for (int i = 0; i < 130; ++i)
    measured(kernel(0), 600 * kUs + (random() % 4 != 0 ? random() % (5 * kMs) : 0), Company::jobs);
  EXPECT_EQ(estimate(kernel(0)), 600 * kUs);
}

// Many of which met the time of other ranks.
TEST_F(CostsTest, AmongOtherRanksALowQuantileCounts) {
  std::mt19937_64 random(3);
  measured(kernel(0), 3 * kMs, Company::ranks);
  for (int i = 0; i < 100; ++i)
    measured(kernel(0), 20 * kUs + (random() % 2 != 0 ? random() % (5 * kMs) : 0), Company::ranks);
  EXPECT_GE(estimate(kernel(0)), 20 * kUs);
  EXPECT_LE(estimate(kernel(0)), 24 * kUs);
}

TEST_F(CostsTest, OneThatMetOtherWorkDoesLittle) {
  for (int i = 0; i < 50; ++i) measured(kernel(0), 20 * kUs);
  measured(kernel(0), 20 * kMs);
  EXPECT_LT(estimate(kernel(0)), 25 * kUs);
}

TEST_F(CostsTest, ShortLaunchesArePaidFromTheCredit) {
  Meter meter{};
  meter.measured_ns = 100 * kSecond;
  LaunchCredit credit;
  measured(kernel(0), 20 * kUs);
  EXPECT_FALSE(spends(credit, kernel(0)));
  const Decision decision = decide(job_, meter, *costs_, kernel(0), credit, 50, 100 * kSecond);
  ASSERT_TRUE(decision.go);
  EXPECT_FALSE(open_batch(credit, decision));
  unsigned paid = 1;
  while (spends(credit, kernel(0))) ++paid;
  EXPECT_EQ(paid, kCreditBatchNs / (20 * kUs));
  EXPECT_EQ(device_->charged_ns.load(), kCreditBatchNs);
  EXPECT_EQ(credit.launches, paid);
  const Batch batch = close_batch(credit);
  EXPECT_EQ(batch.launches, paid);
  EXPECT_EQ(batch.cost_ns, kCreditBatchNs);
  EXPECT_EQ(batch.prepaid_ns, kCreditBatchNs);
  EXPECT_EQ(credit.unspent_ns, 0u);
}

// Where launches overlap, so many more follow each other.
TEST_F(CostsTest, ThePaceIsPaid) {
  more_->pace = PaceWord{20e6f, 80e6f}.pack();
  Meter meter{};
  meter.measured_ns = 100 * kSecond;
  LaunchCredit credit;
  measured(kernel(0), 20 * kUs);
  const Decision decision = decide(job_, meter, *costs_, kernel(0), credit, 50, 100 * kSecond);
  EXPECT_FALSE(open_batch(credit, decision));
  unsigned paid = 1;
  while (spends(credit, kernel(0))) ++paid;
  EXPECT_EQ(paid, 4 * kCreditBatchNs / (20 * kUs));
  const Batch batch = close_batch(credit);
  EXPECT_EQ(batch.cost_ns, 4 * kCreditBatchNs);
  EXPECT_EQ(batch.prepaid_ns, kCreditBatchNs);
}

TEST_F(CostsTest, ABatchThatIsFullEndsBehindItsLaunch) {
  Meter meter{};
  meter.measured_ns = 100 * kSecond;
  LaunchCredit credit;
  measured(kernel(0), 1500 * kUs);
  EXPECT_TRUE(open_batch(credit, decide(job_, meter, *costs_, kernel(0), credit, 50, 100 * kSecond)));
}

TEST_F(CostsTest, WhatIsNotSpentGoesBack) {
  Meter meter{};
  meter.measured_ns = 100 * kSecond;
  LaunchCredit credit;
  measured(kernel(0), 20 * kUs);
  open_batch(credit, decide(job_, meter, *costs_, kernel(0), credit, 50, 100 * kSecond));
  const std::uint64_t before = device_->tat.load();
  EXPECT_EQ(close_batch(credit).prepaid_ns, 20 * kUs);
  give_back(*device_, credit, 50);
  EXPECT_EQ(device_->tat.load(), before - 2 * (kCreditBatchNs - 20 * kUs));
  EXPECT_EQ(device_->charged_ns.load(), 20 * kUs);
}

TEST_F(CostsTest, ALaunchThatTheDriverRefusedCostsNothing) {
  Meter meter{};
  LaunchCredit credit;
  open_batch(credit, decide(job_, meter, *costs_, kernel(0), credit, 50, 100 * kSecond));
  cancel_batch(credit);
  give_back(*device_, credit, 50);
  EXPECT_EQ(device_->charged_ns.load(), 0u);
}

}  // namespace
}  // namespace vgpu::sm::test
