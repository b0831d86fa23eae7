// What batches are charged, and the two things it rests on: which time was charged already, and whose clock it is.
#include "sm/batch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "sm/coverage.h"
#include "sm/device_clock.h"
#include "sm/pace.h"

namespace vgpu::sm::test {

using namespace region;
namespace {

constexpr std::uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000 * kMs;
constexpr std::uint64_t kStart = 5'000 * kSecond;

// ---- coverage -------------------------------------------------------------------------------------------------------

class CoverageTest : public testing::Test {
 protected:
  std::uint64_t covers(std::uint64_t from, std::uint64_t to) { return cover(*words_, kStart + from, kStart + to); }
  std::unique_ptr<CoverageWords> words_ = std::make_unique<CoverageWords>();
};

TEST_F(CoverageTest, TimeIsNewOnce) {
  EXPECT_EQ(covers(0, 2 * kMs), 2 * kMs);
  EXPECT_EQ(covers(0, 2 * kMs), 0u);
  EXPECT_NEAR(static_cast<double>(covers(kMs, 3 * kMs)), static_cast<double>(kMs), static_cast<double>(kQuantumNs));
  EXPECT_EQ(covers(3 * kMs, 3 * kMs), 0u);
  EXPECT_EQ(covers(4 * kMs, 3 * kMs), 0u);
}

TEST_F(CoverageTest, SpansThatFollowEachOtherAddUp) {
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < 100 * kMs; at += 20 * kUs) sum += covers(at, at + 20 * kUs);
  EXPECT_NEAR(static_cast<double>(sum), 100.0 * kMs, 2.0 * kMs);
}

TEST_F(CoverageTest, ALongSpanIsCountedInFull) {
  EXPECT_EQ(covers(0, 10 * kSecond), 10 * kSecond);
  EXPECT_EQ(covers(10 * kSecond - 100 * kMs, 10 * kSecond), 0u);
}

TEST_F(CoverageTest, WhatIsTooLongAgoIsNew) {
  covers(kSecond, kSecond + 300 * kMs);
  EXPECT_EQ(covers(10 * kMs, 20 * kMs), 10 * kMs) << "of an older turn of the ring";
  EXPECT_EQ(covers(kSecond, kSecond + 300 * kMs), 0u) << "and it spoils nothing";
}

TEST_F(CoverageTest, OldTurnsOfTheRingAreForgotten) {
  for (std::uint64_t turn = 0; turn < 1000; ++turn) {
    const std::uint64_t at = turn * 512 * 48 * kQuantumNs;
    ASSERT_EQ(covers(at, at + kMs), kMs) << turn;
  }
}

// Whatever the clock shows when a region is made, and after hours without a launch.
TEST_F(CoverageTest, EveryEpochBegins) {
  for (std::uint64_t hour = 0; hour < 50; ++hour) {
    ASSERT_EQ(covers(hour * 3600 * kSecond, hour * 3600 * kSecond + kMs), kMs) << hour;
    ASSERT_EQ(covers(hour * 3600 * kSecond, hour * 3600 * kSecond + kMs), 0u) << hour;
  }
}

// Threads that cover the same time: each quantum is some thread's, and of one only.
TEST_F(CoverageTest, ManyAtOncePayOnce) {
  constexpr unsigned kThreads = 4;
  std::atomic<std::uint64_t> sum{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t step = 0; step < 200; ++step) {
        const std::uint64_t at = (step + t) * 100 * kQuantumNs;
        sum += covers(at, at + 300 * kQuantumNs);
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(sum.load(), (199 + kThreads - 1 + 3) * 100 * kQuantumNs);
}

// ---- the clock ------------------------------------------------------------------------------------------------------

// A device whose clock began elsewhere and drifts, and which work reaches after 4 us.
struct Hardware {
  double drift = 0;
  std::uint64_t stamp(std::uint64_t host_ns) const {
    return 77 * kSecond + static_cast<std::uint64_t>(static_cast<double>(host_ns - kStart + 4 * kUs) * (1 + drift));
  }
};

TEST(DeviceClock, AnIdleStreamShowsTheOffset) {
  const Hardware hardware;
  DeviceClock clock{};
  EXPECT_FALSE(clock.known());
  clock.see(hardware.stamp(kStart), {kStart - 2 * kUs, kStart}, true);
  EXPECT_TRUE(clock.known());
  EXPECT_EQ(clock.host_time(hardware.stamp(kStart + kSecond)), kStart + kSecond);
}

TEST(DeviceClock, ItFollowsADrift) {
  for (const double drift : {50e-6, -50e-6}) {
    const Hardware hardware = {drift};
    DeviceClock clock{};
    for (std::uint64_t at = kStart; at < kStart + 100 * kSecond; at += 20 * kMs) {
      clock.see(hardware.stamp(at), {at - 2 * kUs, at}, true);
      const auto error = static_cast<double>(clock.host_time(hardware.stamp(at)) - at);
      ASSERT_LE(std::abs(static_cast<double>(static_cast<std::int64_t>(error))), 60.0 * kUs) << drift;
    }
  }
}

TEST(DeviceClock, MarksBehindOtherWorkAreLate) {
  const Hardware hardware;
  DeviceClock clock{};
  clock.see(hardware.stamp(kStart), {kStart - 2 * kUs, kStart}, true);
  // Never idle again.
  for (std::uint64_t at = kStart; at < kStart + 10 * kSecond; at += 2 * kMs)
    clock.see(hardware.stamp(at + kMs), {at - 2 * kUs, at}, false);
  EXPECT_EQ(clock.host_time(hardware.stamp(kStart + 10 * kSecond)), kStart + 10 * kSecond);
}

TEST(DeviceClock, AFirstMarkThatWasLateIsPutRight) {
  const Hardware hardware;
  DeviceClock clock{};
  clock.see(hardware.stamp(kStart + 20 * kMs), {kStart - 2 * kUs, kStart}, false);
  clock.see(hardware.stamp(kStart + 30 * kMs), {kStart + 30 * kMs - 2 * kUs, kStart + 30 * kMs}, false);
  EXPECT_EQ(clock.host_time(hardware.stamp(kStart + kSecond)), kStart + kSecond);
}

TEST(DeviceClock, AnInterruptedHostTellsNothing) {
  const Hardware hardware;
  DeviceClock clock{};
  clock.see(hardware.stamp(kStart), {kStart - 2 * kUs, kStart}, true);
  clock.see(hardware.stamp(kStart + kMs), {kStart + kMs, kStart + 4 * kMs}, true);
  EXPECT_EQ(clock.host_time(hardware.stamp(kStart + kSecond)), kStart + kSecond);
}

// ---- charging -------------------------------------------------------------------------------------------------------

class BatchTest : public testing::Test {
 protected:
  // Launches that cost `cost` each, one by one, from `from` to `to`.
  Batch batch(std::uint64_t from, std::uint64_t cost, std::uint64_t launches) const {
    return {launch_, kStart + from, cost * launches, cost * launches, launches, false, false, false};
  }
  static BatchEnd end(std::uint64_t from, std::uint64_t to, std::uint64_t behind) {
    return {kStart + to, behind, kStart + from};
  }
  // What a batch is charged that was prepaid.
  std::int64_t charged(const Batch &batch, const BatchEnd &end) {
    const std::uint64_t before = device_->charged_ns.load();
    wakes_ = settle(job_, meter_, *costs_, batch, end, 50);
    return static_cast<std::int64_t>(device_->charged_ns.load() - before + batch.prepaid_ns);
  }

  std::unique_ptr<Costs> costs_ = std::make_unique<Costs>();
  std::unique_ptr<DeviceUsage> device_ = std::make_unique<DeviceUsage>();
  std::unique_ptr<DeviceMore> more_ = std::make_unique<DeviceMore>();
  const JobDevice job_ = {*device_, more_->pace, more_->coverage};
  Meter meter_{};
  int function_ = 0;
  const LaunchKey launch_ = Costs::launch_key(&function_, 1, 256);
  bool wakes_ = false;
};

TEST_F(BatchTest, TheTimeInFlightIsCharged) {
  EXPECT_EQ(charged(batch(0, 200 * kUs, 10), end(0, 2100 * kUs, kMs)), 2100 * static_cast<std::int64_t>(kUs));
}

// Four streams of a device that runs them beside each other.
TEST_F(BatchTest, WhatOverlapsIsChargedOnce) {
  EXPECT_EQ(charged(batch(0, 200 * kUs, 40), end(0, 2 * kMs, kMs)), 2 * static_cast<std::int64_t>(kMs));
  EXPECT_EQ(charged(batch(0, 200 * kUs, 40), end(0, 2 * kMs, kMs)), 0) << "another rank's, at the same time";
  for (std::uint64_t at = 2 * kMs; at < 200 * kMs; at += 2 * kMs)
    charged(batch(at, 200 * kUs, 40), end(at, at + 2 * kMs, kMs));
  EXPECT_NEAR(current_pace(more_->pace), 0.25, 0.02) << "and more of them may follow each other";
}

TEST_F(BatchTest, AnIdleDeviceIsNotCharged) {
  std::int64_t sum = 0;
  for (std::uint64_t at = 0; at < kSecond; at += 10 * kMs)
    sum += charged(batch(at, 20 * kUs, 100), end(at, at + 10 * kMs, 0));
  EXPECT_NEAR(static_cast<double>(sum), 100.0 * 2 * kMs, 2.0 * kMs) << "what the host was slow with";
}

// Nor what is no kernel: a copy behind each launch.
TEST_F(BatchTest, CopiesAreChargedAPartAtMost) {
  std::int64_t sum = 0;
  for (std::uint64_t at = 0; at < kSecond; at += 10 * kMs)
    sum += charged(batch(at, 20 * kUs, 100), end(at, at + 10 * kMs, 5 * kMs));
  EXPECT_LE(static_cast<double>(sum), 1.6 * 100 * 2 * kMs);
}

TEST_F(BatchTest, WhatTheStreamHadToDoBeforeIsNot) {
  Batch only = batch(0, kMs, 1);
  EXPECT_EQ(charged(only, end(5 * kMs, 6 * kMs, 5 * kMs)), static_cast<std::int64_t>(kMs));
}

TEST_F(BatchTest, AMeasuredLaunchTeachesItsCost) {
  costs_->find_or_insert(launch_.key, 1);
  Batch only = batch(0, 0, 1);
  only.guess = only.measured = true;
  only.prepaid_ns = kFirstGuessNs;
  EXPECT_EQ(charged(only, end(0, 3 * kMs, 3 * kMs)), 3 * static_cast<std::int64_t>(kMs));
  EXPECT_TRUE(wakes_) << "22 ms go back";
  EXPECT_EQ(costs_->find(launch_.key)->settled_ns.load(), 3 * kMs);
}

TEST_F(BatchTest, NothingIsLearnedFromACallThatTookTheHostLong) {
  costs_->find_or_insert(launch_.key, 1);
  Batch only = batch(0, 0, 1);
  only.guess = only.measured = only.interrupted = true;
  charged(only, end(0, 3 * kMs, 3 * kMs));
  EXPECT_EQ(costs_->find(launch_.key)->settled_ns.load(), 0u);
}

TEST_F(BatchTest, AMarkThatCameAfterTheEndIsABoundOnly) {
  costs_->find_or_insert(launch_.key, 1);
  for (int i = 0; i < 20; ++i) costs_->learn(launch_, 5 * kUs, Company::none);
  Batch only = batch(0, 5 * kUs, 1);
  only.measured = true;
  charged(only, end(0, 7 * kUs, 0));
  EXPECT_EQ(costs_->find(launch_.key)->settled_ns.load(), 5 * kUs);
  only.arrived_ns += kMs;
  charged(only, end(kMs, kMs + 3 * kUs, 0));
  EXPECT_LT(costs_->find(launch_.key)->settled_ns.load(), 5 * kUs);
}

TEST_F(BatchTest, NonsenseInThePaceIsNone) {
  std::uint64_t at = 0;
  for (const std::uint64_t nonsense : {~std::uint64_t{0}, std::uint64_t{0x7f800000}, std::uint64_t{0xbf800000},
                                       std::uint64_t{0x5a000000}, std::uint64_t{0x5a00000000000000}}) {
    more_->pace = nonsense;
    const double pace = current_pace(more_->pace);
    EXPECT_TRUE(pace >= 0.05 && pace <= 2) << nonsense;
    for (const std::uint64_t until = at + kSecond; at < until; at += 2 * kMs)
      charged(batch(at, kMs, 2), end(at, at + 2 * kMs, 5 * kMs));
    EXPECT_NEAR(current_pace(more_->pace), 1, 0.1);
    for (Word &word : more_->coverage.words) word = nonsense;
  }
}

}  // namespace
}  // namespace vgpu::sm::test
