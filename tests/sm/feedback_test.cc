// The elected rank: who it is, and what it makes of NVML.
#include "sm/feedback.h"

#include <gtest/gtest.h>

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
