// The elected rank: who it is, and what it makes of NVML.
#include "sm/feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sm/election.h"

namespace vgpu::sm::test {

using namespace region;
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kWindowNs = 167 * kMs;

// A job that is charged `charged` percent and of which NVML says `seen`, for a while. Returns the ratio.
std::uint64_t after(double seconds, double charged, unsigned seen, unsigned processes = 1, bool shared = false,
                    std::uint64_t ratio = region::TrimWord::kOne) {
  Feedback feedback;
  const std::uint64_t start = 1000'000 * kMs;
  for (std::uint64_t now = start; static_cast<double>(now - start) < seconds * 1e9; now += kWindowNs) {
    feedback.note_charged(now, static_cast<std::uint64_t>(static_cast<double>(now - start) * charged / 100));
    ratio = feedback.observe({now - 500 * kMs, seen, processes, kMs, shared}, now, ratio);
  }
  return ratio;
}

TEST(Feedback, AgreementChangesNothing) { EXPECT_EQ(after(60, 50, 50), region::TrimWord::kOne); }

TEST(Feedback, NorDoesWhatRoundingExplains) {
  EXPECT_EQ(after(60, 50, 49), region::TrimWord::kOne);
  EXPECT_EQ(after(60, 10, 3, 8), region::TrimWord::kOne);  // eight times 1.25, cut off to 1 or to 0
}

TEST(Feedback, CostsThatAreOffAreFound) {
  EXPECT_NEAR(static_cast<double>(after(6, 25, 50)) / region::TrimWord::kOne, 2, 0.05);
  EXPECT_NEAR(static_cast<double>(after(6, 50, 20)) / region::TrimWord::kOne, 0.4, 0.05);
}

TEST(Feedback, AmongOtherJobsSmallerDifferencesCount) {
  EXPECT_EQ(after(6, 30, 32, 1, false), region::TrimWord::kOne);
  EXPECT_NE(after(6, 30, 32, 1, true), region::TrimWord::kOne);
}

TEST(Feedback, NotBeforeItHasSeenEnough) { EXPECT_EQ(after(2, 50, 20), region::TrimWord::kOne); }

TEST(Feedback, ItNeverGoesToExtremes) {
  EXPECT_LE(after(600, 1, 100), 16 * region::TrimWord::kOne);
  EXPECT_GE(after(600, 90, 0), region::TrimWord::kOne / 16);
}

// A job that is charged 20 % and of which NVML says nothing, for a while.
std::uint64_t after_silence(double seconds, std::uint64_t ratio, double charged = 20) {
  Feedback feedback;
  const std::uint64_t start = 1000'000 * kMs;
  for (std::uint64_t now = start; static_cast<double>(now - start) < seconds * 1e9; now += kTickMs * kMs) {
    feedback.note_charged(now, static_cast<std::uint64_t>(static_cast<double>(now - start) * charged / 100));
    ratio = feedback.without_answer(ratio);
  }
  return ratio;
}

TEST(Feedback, WhatIsNotKnownChangesNothing) {
  EXPECT_EQ(after_silence(60, region::TrimWord::kOne), region::TrimWord::kOne);
  EXPECT_EQ(after_silence(9, region::TrimWord::kOne / 16), region::TrimWord::kOne / 16);
}

TEST(Feedback, AnOldRatioFades) {
  for (const std::uint64_t ratio : {region::TrimWord::kOne / 16, 16 * region::TrimWord::kOne}) {
    EXPECT_EQ(after_silence(9.5, ratio), ratio);
    EXPECT_NE(after_silence(11, ratio), ratio) << "it has begun";
    EXPECT_EQ(after_silence(30, ratio), region::TrimWord::kOne);
  }
}

TEST(Feedback, ButNotThatOfAJobThatPauses) {
  EXPECT_EQ(after_silence(600, 2 * region::TrimWord::kOne, 1), 2 * region::TrimWord::kOne);
}

TEST(Feedback, OneAnswerIsEnoughToKeepIt) {
  Feedback feedback;
  const std::uint64_t start = 1000'000 * kMs, old = 2 * region::TrimWord::kOne;
  std::uint64_t ratio = old;
  for (std::uint64_t now = start; now < start + 60'000 * kMs; now += kTickMs * kMs) {
    feedback.note_charged(now, (now - start) / 5);
    const bool answers = (now - start) / kMs % 9000 < kTickMs;
    ratio =
        answers ? feedback.observe({now - 500 * kMs, 40, 1, kMs, false}, now, ratio) : feedback.without_answer(ratio);
  }
  EXPECT_EQ(ratio, old);
}

// A process that never has to wait, on a machine that takes the core from it now and then, for up to 0.4 s: kernels, and a
// pause after each few of them. It asks NVML when it launches, as in sm/launch.cc; NVML tells of the last window in which it
// was busy, `lag_ns` late.
class BusyMachine {
 public:
  struct Program {
    double kernel_ns;
    unsigned burst;
    double interruptions;  // of each launch
    double lag_ns;
    double costs_are_off;
  };
  struct Ratios {
    double least = 1, most = 1, last = 1;
  };

  BusyMachine(const Program &program, unsigned seed) : program_(program), random_(seed) {}

  Ratios run(double seconds) {
    while (now_ < kStart + seconds * 1e9) {
      for (unsigned i = 0; i < program_.burst; ++i) launch();
      now_ = std::max(now_, idle_from_) + 1e6;
      interrupt();
    }
    return ratios_;
  }

 private:
  static constexpr double kStart = 1e12, kWindow = 1e9 / 6;

  double dice() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  void interrupt() {
    if (dice() < program_.interruptions) now_ += (5 + 400 * dice() * dice()) * 1e6;
  }
  void note() { feedback_.note_charged(static_cast<std::uint64_t>(now_), static_cast<std::uint64_t>(charged_)); }

  void launch() {
    note();
    if (now_ >= next_tick_) {
      next_tick_ = now_ + kTickMs * 1e6;
      ask_nvml();
    }
    charged_ += program_.kernel_ns * program_.costs_are_off;
    note();
    const double from = std::max(now_, idle_from_);
    idle_from_ = from + program_.kernel_ns;
    for (double at = from; at < idle_from_;) {
      const auto window = static_cast<std::size_t>((at - kStart) / kWindow);
      if (busy_.size() <= window) busy_.resize(window + 1);
      const double end = std::min(idle_from_, kStart + static_cast<double>(window + 1) * kWindow);
      busy_[window] += end - at;
      at = end + 1;
    }
    now_ += 3e3;
    interrupt();
  }

  void ask_nvml() {
    const auto ended = static_cast<std::size_t>(std::max(0.0, (now_ - program_.lag_ns - kStart) / kWindow));
    std::size_t last = std::min(ended, busy_.size());
    while (last > seen_ && percent(last - 1) == 0) --last;
    if (last > seen_) {
      seen_ = last;
      const double to = kStart + static_cast<double>(last) * kWindow;
      ratio_ = feedback_.observe(
          {static_cast<std::uint64_t>(to), percent(last - 1), 1, static_cast<std::uint64_t>(program_.kernel_ns), false},
          static_cast<std::uint64_t>(now_), ratio_);
    } else {
      ratio_ = feedback_.without_answer(ratio_);
    }
    ratios_.last = static_cast<double>(ratio_) / region::TrimWord::kOne;
    ratios_.least = std::min(ratios_.least, ratios_.last);
    ratios_.most = std::max(ratios_.most, ratios_.last);
  }
  unsigned percent(std::size_t window) const { return static_cast<unsigned>(busy_[window] * 100 / kWindow + 0.5); }

  Program program_;
  std::mt19937_64 random_;
  Feedback feedback_;
  std::uint64_t ratio_ = region::TrimWord::kOne;
  double now_ = kStart, idle_from_ = 0, charged_ = 0, next_tick_ = 0;
  std::vector<double> busy_;
  std::size_t seen_ = 0;  // windows
  Ratios ratios_;
};

TEST(Feedback, ABusyMachineIsNotMisjudged) {
  for (const double kernel_ns : {200e3, 2e6, 20e6}) {
    for (const unsigned burst : {1u, 10u}) {
      if (kernel_ns * burst > 50e6) continue;  // nobody can launch so much at once
      for (const double interruptions : {0.0, 0.01, 0.05, 0.2}) {
        for (const double lag_ns : {170e6, 400e6, 1000e6}) {
          for (unsigned seed = 1; seed <= 5; ++seed) {
            const BusyMachine::Ratios ratios = BusyMachine({kernel_ns, burst, interruptions, lag_ns, 1}, seed).run(60);
            EXPECT_GE(ratios.least, 0.95) << kernel_ns << ' ' << burst << ' ' << interruptions << ' ' << lag_ns;
            EXPECT_LE(ratios.most, 1.05) << kernel_ns << ' ' << burst << ' ' << interruptions << ' ' << lag_ns;
          }
        }
      }
    }
  }
}

TEST(Feedback, NorDoesItHideCostsThatAreOff) {
  for (const double kernel_ns : {2e6, 20e6}) {
    for (const double interruptions : {0.0, 0.01, 0.05}) {
      for (unsigned seed = 1; seed <= 5; ++seed) {
        const BusyMachine::Ratios ratios = BusyMachine({kernel_ns, 1, interruptions, 400e6, 0.5}, seed).run(60);
        EXPECT_NEAR(ratios.last, 2, 0.2) << kernel_ns << ' ' << interruptions;
      }
    }
  }
}

TEST(Words, SurviveTheirPacking) {
  const region::TrimWord trim = region::TrimWord::unpack(region::TrimWord{12'345, true, 77}.pack());
  EXPECT_EQ(trim.ratio, 12'345u);
  EXPECT_TRUE(trim.shared);
  EXPECT_EQ(trim.epoch, 77u);
  EXPECT_EQ(region::TrimWord::unpack(0).ratio, region::TrimWord::kOne);
  const region::LeaseWord lease = region::LeaseWord::unpack(region::LeaseWord{511, 99, 123'456'789}.pack());
  EXPECT_EQ(lease.slot, 511u);
  EXPECT_EQ(lease.epoch, 99u);
  EXPECT_EQ(lease.stamp, 123'456'789u);
}

class ElectionTest : public testing::Test {
 protected:
  DeviceUsage device_{};
  Candidate first_, second_;
  std::uint64_t now_ = 1'000'000;
};

TEST_F(ElectionTest, OneLooksOncePerTick) {
  EXPECT_EQ(claim_lease(device_, first_, 1, now_), LeaseClaim::acquired);
  EXPECT_EQ(claim_lease(device_, first_, 1, now_ + kTickMs - 1), LeaseClaim::refused);
  EXPECT_EQ(claim_lease(device_, second_, 2, now_ + kTickMs), LeaseClaim::refused);
  EXPECT_EQ(claim_lease(device_, first_, 1, now_ + kTickMs), LeaseClaim::renewed);
}

TEST_F(ElectionTest, OneThatStaysAwayIsReplacedAfterThreeTicks) {
  claim_lease(device_, first_, 1, now_);
  EXPECT_EQ(claim_lease(device_, second_, 2, now_ + 3 * kTickMs - 1), LeaseClaim::refused);
  EXPECT_EQ(claim_lease(device_, second_, 2, now_ + 3 * kTickMs), LeaseClaim::acquired);
  EXPECT_EQ(claim_lease(device_, first_, 1, now_ + 4 * kTickMs), LeaseClaim::refused);
}

TEST_F(ElectionTest, OneThatWakesChangesNothing) {
  claim_lease(device_, first_, 1, now_);
  EXPECT_TRUE(publish(device_, first_, 2 * region::TrimWord::kOne, false));
  claim_lease(device_, second_, 2, now_ + 3 * kTickMs);
  EXPECT_EQ(region::TrimWord::unpack(device_.trim.load()).ratio, 2 * region::TrimWord::kOne)
      << "the new one starts from there";
  EXPECT_FALSE(publish(device_, first_, 9 * region::TrimWord::kOne, true));
  EXPECT_TRUE(publish(device_, second_, 3 * region::TrimWord::kOne, false));
  EXPECT_EQ(region::TrimWord::unpack(device_.trim.load()).ratio, 3 * region::TrimWord::kOne);
}

TEST_F(ElectionTest, AnotherProcessInTheSameSlotIsNotElected) {
  claim_lease(device_, first_, 1, now_);
  EXPECT_EQ(claim_lease(device_, second_, 1, now_ + kTickMs), LeaseClaim::refused);
}

TEST_F(ElectionTest, AStampFromTheFutureIsNobodys) {
  device_.lease = region::LeaseWord{1, 5, now_ + 1'000'000}.pack();
  EXPECT_EQ(claim_lease(device_, first_, 3, now_), LeaseClaim::acquired);
}

}  // namespace
}  // namespace vgpu::sm::test
