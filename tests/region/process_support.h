// One live rank of the test's own, beside processes that do what they like.
#pragma once

#include "support.h"

namespace vgpu::test {

using namespace region;

inline constexpr std::uint64_t kLimit = 64 * kMiB;

class ProcessTest : public RegionTest {
 protected:
  void SetUp() override {
    create(1, kLimit);
    ASSERT_FALSE(Rank::attach(region_, &rank_));
  }
  // All that others could have held, in ONE reserve.
  void expect_all_available() {
    const Stopwatch watch;
    EXPECT_EQ(reserve(rank_, 0, Kind::other, kLimit), Grant::granted) << used() << " bytes are still counted";
    EXPECT_QUICK(watch);
    rank_.release(0, Kind::other, kLimit);
    expect_consistent();
  }
  static bool take_and_give(Rank &rank) {
    if (reserve(rank, 0, Kind::data, kMiB) != Grant::granted) return false;
    rank.release(0, Kind::data, kMiB);
    return true;
  }

  Rank rank_;
};

}  // namespace vgpu::test
