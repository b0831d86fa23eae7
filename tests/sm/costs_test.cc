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
  Cost &kernel(int number, std::uint64_t blocks = 1) { return costs_->find(&functions_[number], blocks, 256); }
  std::int64_t measured(Cost &cost, std::uint64_t elapsed, bool alone = true, bool shared = false) {
    return costs_->learn(cost, {elapsed, 0, alone, shared});
  }

  std::unique_ptr<Costs> costs_ = std::make_unique<Costs>();
  long functions_[8];
};

TEST_F(CostsTest, SizesOfAFunctionAreDifferentLaunches) {
  EXPECT_EQ(&kernel(0), &kernel(0));
  EXPECT_NE(&kernel(0), &kernel(1));
  EXPECT_NE(&kernel(0, 1), &kernel(0, 2));
}

TEST_F(CostsTest, AFullTableStillAnswers) {
  for (std::uint64_t blocks = 1; blocks < 20'000; ++blocks) kernel(0, blocks).key.load();
  EXPECT_EQ(&kernel(0, 19'999), &kernel(0, 19'999));
}

TEST_F(CostsTest, ANewSizeCostsWhatTheFunctionCostBefore) {
  measured(kernel(0, 10), 300 * kUs);
  EXPECT_EQ(Costs::estimate(kernel(0, 11)), 300 * kUs);
  EXPECT_EQ(Costs::estimate(kernel(1, 10)), 0u);
}

TEST_F(CostsTest, AGuessIsAtLeastTheTimeThatHasPassed) {
  Cost &cost = kernel(0);
  EXPECT_EQ(Costs::guess(cost, kSecond), kFirstGuessNs);
  Costs::note_guess(cost, kFirstGuessNs, kSecond);
  EXPECT_EQ(Costs::guess(cost, 2 * kSecond), kFirstGuessNs) << "nothing is measured, so that nothing is known";
  cost.under_way = 1;
  EXPECT_EQ(Costs::guess(cost, 2 * kSecond), kSecond);
}

TEST_F(CostsTest, GuessesArePutRightByTheFirstMeasurement) {
  Cost &cost = kernel(0);
  Costs::note_guess(cost, 25 * kMs, kSecond);
  Costs::note_guess(cost, 30 * kMs, kSecond);
  EXPECT_EQ(measured(cost, 20 * kMs), -15 * static_cast<std::int64_t>(kMs));
  EXPECT_EQ(Costs::estimate(cost), 20 * kMs);
}

TEST_F(CostsTest, WhatCannotBeMeasuredIsNotGuessedHighForEver) {
  Cost &cost = kernel(0);
  for (int i = 0; i < 16; ++i) Costs::note_guess(cost, Costs::guess(cost, kSecond), kSecond);
  EXPECT_LT(Costs::guess(cost, 100 * kSecond), kMs);
}

// Kernels that take now this long, now that long.
TEST_F(CostsTest, TheMeanOfMeasurementsAloneCounts) {
  std::mt19937_64 random(1);
  Cost &cost = kernel(0);
  double sum = 0;
  constexpr int kTimes = 2000;
  for (int i = 0; i < kTimes; ++i) {
    const std::uint64_t took = 100 * kUs + random() % (800 * kUs);
    measured(cost, took);
    sum += static_cast<double>(Costs::estimate(cost));
  }
  EXPECT_NEAR(sum / kTimes, 500.0 * kUs, 20.0 * kUs);
}

TEST_F(CostsTest, AmongOtherJobsTheLeastCounts) {
  std::mt19937_64 random(2);
  Cost &cost = kernel(0);
  for (int i = 0; i < 100; ++i) measured(cost, 200 * kUs + (random() % 4 != 0 ? random() % (5 * kMs) : 0), false, true);
  EXPECT_EQ(Costs::estimate(cost), 200 * kUs);
  // And it follows a kernel that became slower.
  for (int i = 0; i < 100; ++i) measured(cost, 600 * kUs + (random() % 4 != 0 ? random() % (5 * kMs) : 0), false, true);
  EXPECT_EQ(Costs::estimate(cost), 600 * kUs);
}

TEST_F(CostsTest, OneThatWasNotAloneAfterAllDoesLittle) {
  Cost &cost = kernel(0);
  for (int i = 0; i < 50; ++i) measured(cost, 20 * kUs);
  measured(cost, 20 * kMs);
  EXPECT_LT(Costs::estimate(cost), 25 * kUs);
}

TEST_F(CostsTest, ShortLaunchesArePaidFromTheCredit) {
  DeviceUsage device{};
  Meter meter{};
  LaunchCredit credit;
  Cost &cost = kernel(0);
  for (int i = 0; i < 3; ++i) measured(cost, 20 * kUs);
  EXPECT_FALSE(spend(credit, 0, cost));
  ASSERT_TRUE(decide(device, meter, cost, credit, 50, 100 * kSecond).go);
  unsigned paid = 1;
  while (spend(credit, 0, cost)) ++paid;
  EXPECT_EQ(paid, kCreditBatchNs / (20 * kUs));
  EXPECT_EQ(credit.remaining_ns, 0u);
  EXPECT_EQ(device.charged_ns.load(), kCreditBatchNs);
  EXPECT_EQ(credit.launches, paid);
}

// The host's calls, one after another: 8 us for the first event, 1 us to ask, 400 ns to launch, 1 us for the second event.
HostTimeline host_timeline(bool idle_before_start, bool idle_before_launch) {
  return {idle_before_start, idle_before_launch, 100 * kUs, 108 * kUs, 109 * kUs, 109 * kUs + 400, 110 * kUs + 400};
}

TEST(DeviceTime, BehindAnotherLaunchItIsAllTheDevices) {
  EXPECT_EQ(device_time(host_timeline(false, false), 20 * kUs, 10 * kUs), 20 * kUs);
}

TEST(DeviceTime, AnIdleDeviceWaitsForTheHost) {
  EXPECT_EQ(device_time(host_timeline(true, true), 25'200, 10 * kUs), 20 * kUs);
}

TEST(DeviceTime, WhenItBecameIdleIsNotKnown) {
  // The first event can have been anywhere between 100 and 109 us, and the launch between 109 and 109.4 us.
  const HostTimeline host = host_timeline(false, true);
  EXPECT_EQ(device_time(host, 24 * kUs, 20 * kUs), 20 * kUs) << "nothing against what is known";
  EXPECT_EQ(device_time(host, 24 * kUs, 12 * kUs), 24 * kUs - 9'400) << "at least";
  EXPECT_EQ(device_time(host, 24 * kUs, 30 * kUs), 24 * kUs) << "at most";
  EXPECT_EQ(device_time(host, 24 * kUs, 0), 24 * kUs) << "too much rather than too little";
}

TEST(DeviceTime, AnInterruptedHostTellsLittle) {
  HostTimeline host = host_timeline(true, true);
  host.end_returned_ns += 4 * kMs;
  EXPECT_EQ(device_time(host, 25'200, 20 * kUs), 20 * kUs) << "the second event may have been long before";
  EXPECT_EQ(device_time(host, 4 * kMs, 20 * kUs), 20 * kUs) << "or late";
  host = host_timeline(true, true);
  host.start_returned_ns += 4 * kMs, host.launch_called_ns += 4 * kMs, host.launch_returned_ns += 4 * kMs,
      host.end_returned_ns += 4 * kMs;
  EXPECT_EQ(device_time(host, 22 * kUs, 20 * kUs), 20 * kUs);
  EXPECT_EQ(device_time(host, 4 * kMs + 25'200, 20 * kUs), 20 * kUs);
}

TEST_F(CostsTest, WhatIsNotSpentGoesBack) {
  DeviceUsage device{};
  Meter meter{};
  LaunchCredit credit;
  Cost &cost = kernel(0);
  for (int i = 0; i < 3; ++i) measured(cost, 20 * kUs);
  ASSERT_TRUE(decide(device, meter, cost, credit, 50, 100 * kSecond).go);
  const std::uint64_t before = device.tat.load();
  give_back(device, credit, 50);
  EXPECT_EQ(device.tat.load(), before - 2 * (kCreditBatchNs - 20 * kUs));
  EXPECT_EQ(device.charged_ns.load(), 20 * kUs);
}

TEST_F(CostsTest, TheCreditOfOneDeviceDoesNotPayOnAnother) {
  LaunchCredit credit = {0, kSecond, 0};
  Cost &cost = kernel(0);
  for (int i = 0; i < 3; ++i) measured(cost, 20 * kUs);
  EXPECT_TRUE(spend(credit, 0, cost));
  EXPECT_FALSE(spend(credit, 1, cost));
}

}  // namespace
}  // namespace vgpu::sm::test
