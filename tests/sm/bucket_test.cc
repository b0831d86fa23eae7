// The bucket with a clock of the test's own.
#include "sm/bucket.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace vgpu::sm::test {

using namespace region;
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1'000 * kMs;

class BucketTest : public testing::Test {
 protected:
  // Takes whenever it may until `until`, going at once to the next instant that was promised. Returns what it got.
  std::uint64_t use_until(std::uint64_t until, std::uint64_t cost, unsigned percent) {
    std::uint64_t got = 0;
    while (now_ < until) {
      const BudgetGrant grant = take_budget(device_, rank_share_, {percent}, {cost, true}, now_);
      if (grant.granted) {
        got += cost;
      } else {
        EXPECT_GT(grant.until_ns, now_);
        now_ = grant.until_ns;
      }
    }
    return got;
  }

  DeviceUsage device_{};
  RankShare rank_share_{};
  std::uint64_t now_ = 5'000 * kSecond;
};

TEST_F(BucketTest, ItsRateIsTheShare) {
  for (const unsigned percent : {1u, 10u, 33u, 50u, 90u, 99u}) {
    for (const std::uint64_t cost : {20'000ul, 2 * kMs, 20 * kMs, 700 * kMs}) {
      use_until(now_ + kSecond, cost, percent);  // the burst, or the first debt
      const std::uint64_t from = now_;
      // Many times as long as one launch takes from its budget; for the shortest that is soon.
      const std::uint64_t until = now_ + (cost < kMs ? 20 : 1000) * kSecond;
      const double got = static_cast<double>(use_until(until, cost, percent));
      EXPECT_NEAR(100 * got / static_cast<double>(now_ - from), percent, 0.1) << percent << "% of " << cost << " ns";
    }
  }
}

TEST_F(BucketTest, WhatWasNotUsedIsKeptForABurstAndNoLonger) {
  use_until(now_ + kSecond, kMs, 50);
  now_ += 3600 * kSecond;
  std::uint64_t got = 0;
  while (take_budget(device_, rank_share_, {50}, {kMs, true}, now_).granted) got += kMs;
  EXPECT_GE(got, kBurstNs / 2);
  EXPECT_LE(got, kBurstNs / 2 + kMs);
}

TEST_F(BucketTest, AGuessMayNotSpendWhatWasSaved) {
  now_ += 3600 * kSecond;
  EXPECT_TRUE(take_budget(device_, rank_share_, {50}, {kMs, false}, now_).granted);
  const BudgetGrant second = take_budget(device_, rank_share_, {50}, {kMs, false}, now_);
  EXPECT_FALSE(second.granted);
  EXPECT_EQ(second.until_ns, now_ + 2 * kMs);
}

TEST_F(BucketTest, ALongKernelLeavesADebt) {
  use_until(now_ + kSecond, kMs, 10);
  EXPECT_TRUE(take_budget(device_, rank_share_, {10}, {500 * kMs, true}, now_).granted);
  const BudgetGrant next = take_budget(device_, rank_share_, {10}, {kMs, true}, now_);
  EXPECT_FALSE(next.granted);
  EXPECT_NEAR(static_cast<double>(next.until_ns - now_), 5'000.0 * kMs, 11.0 * kMs);
}

TEST_F(BucketTest, TheRatioIsPaidForToo) {
  use_until(now_ + kSecond, kMs, 50);
  const std::uint64_t from = now_;
  std::uint64_t got = 0;
  while (now_ < from + 100 * kSecond) {
    const BudgetGrant grant = take_budget(device_, rank_share_, {50, 2 << 16}, {kMs, true}, now_);
    if (grant.granted)
      got += kMs;
    else
      now_ = grant.until_ns;
  }
  EXPECT_NEAR(static_cast<double>(got), 0.25 * 100 * kSecond, 0.01 * kSecond);
}

TEST_F(BucketTest, WhatWasChargedCanBePutRight) {
  use_until(now_ + kSecond, kMs, 50);
  const std::uint64_t before = device_.tat.load(), charged = device_.charged_ns.load();
  correct(device_, {50}, 3 * static_cast<std::int64_t>(kMs));
  EXPECT_EQ(device_.tat.load(), before + 6 * kMs);
  correct(device_, {50}, -3 * static_cast<std::int64_t>(kMs));
  EXPECT_EQ(device_.tat.load(), before);
  EXPECT_EQ(device_.charged_ns.load(), charged);
  device_.tat = 5;
  correct(device_, {50}, -3 * static_cast<std::int64_t>(kMs));
  EXPECT_EQ(device_.tat.load(), 0u);
}

TEST_F(BucketTest, NonsenseInTheWordsKeepsNobodyForEver) {
  for (const std::uint64_t nonsense : {~std::uint64_t{0}, now_ + 2 * region::kLargestDebtNs, std::uint64_t{1} << 63}) {
    device_.tat = nonsense;
    device_.contenders = nonsense;
    rank_share_.own_tat = nonsense;
    EXPECT_TRUE(take_budget(device_, rank_share_, {50}, {kMs, true}, now_).granted) << nonsense;
    EXPECT_LT(device_.tat.load(), now_ + kSecond);
    now_ += kSecond;
  }
}

TEST_F(BucketTest, RanksCountThemselvesAndAreForgotten) {
  RankShare others[3]{};
  EXPECT_EQ(contenders(device_, rank_share_, now_), 1u);
  for (RankShare &other : others) contenders(device_, other, now_);
  EXPECT_EQ(contenders(device_, rank_share_, now_), 4u);
  // In the next period those of the last still count; in the one after it, only who came again.
  now_ += 300 * kMs;
  EXPECT_EQ(contenders(device_, rank_share_, now_), 4u);
  now_ += 300 * kMs;
  EXPECT_EQ(contenders(device_, rank_share_, now_), 1u);
}

// Two who always want: one asks for ten times as much at a time.
TEST_F(BucketTest, RanksGetTheSameTimeWhateverTheirLaunchesCost) {
  RankShare shares[2]{};
  const std::uint64_t costs[2] = {2 * kMs, 20 * kMs};
  std::uint64_t got[2] = {}, ready[2] = {now_, now_};
  const std::uint64_t end = now_ + 100 * kSecond;
  while (now_ < end) {
    const unsigned i = ready[0] <= ready[1] ? 0 : 1;
    now_ = std::max(now_, ready[i]);
    const BudgetGrant grant = take_budget(device_, shares[i], {50}, {costs[i], true}, now_);
    if (grant.granted) got[i] += costs[i];
    ready[i] = grant.granted ? now_ + 10'000 : grant.until_ns;
  }
  const double sum = static_cast<double>(got[0] + got[1]);
  EXPECT_NEAR(sum, 0.5 * 100 * kSecond, 0.5 * kSecond);
  EXPECT_NEAR(static_cast<double>(got[0]) / sum, 0.5, 0.05);
}

// An idle rank's part goes to the busy one.
TEST_F(BucketTest, NothingIsLeftOverForAnIdleRank) {
  RankShare idle{};
  use_until(now_ + kSecond, 2 * kMs, 50);
  const std::uint64_t from = now_;
  std::uint64_t got = 0;
  while (now_ < from + 100 * kSecond) {
    contenders(device_, idle, now_);  // it is there, and takes nothing
    const BudgetGrant grant = take_budget(device_, rank_share_, {50}, {2 * kMs, true}, now_);
    if (grant.granted)
      got += 2 * kMs;
    else
      now_ = grant.until_ns;
  }
  EXPECT_NEAR(static_cast<double>(got), 0.5 * 100 * kSecond, 0.1 * kSecond);
}

TEST_F(BucketTest, ManyAtOnceTakeNoMoreThanThereIs) {
  constexpr unsigned kThreads = 4;
  std::atomic<std::uint64_t> clock{now_};
  std::atomic<std::uint64_t> got{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      RankShare own{};
      while (clock.load() < now_ + 10 * kSecond) {
        const std::uint64_t at = clock.fetch_add(1000);
        if (take_budget(device_, own, {50}, {20'000, true}, at).granted) got += 20'000;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  const double span = static_cast<double>(clock.load() - now_);
  EXPECT_LE(static_cast<double>(got.load()), 0.5 * (span + kBurstNs) + kThreads * 20'000);
  EXPECT_GE(static_cast<double>(got.load()), 0.49 * span);
  EXPECT_EQ(got.load(), device_.charged_ns.load());
}

}  // namespace
}  // namespace vgpu::sm::test
