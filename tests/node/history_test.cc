// What is kept of a region's past.
#include "node/history.h"

#include <fstream>

#include "region/support.h"

namespace vgpu::test {

using namespace node;
using namespace region;
namespace {

class HistoryTest : public RegionTest {
 protected:
  void look() { ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &seen_)); }
  double born() const { return static_cast<double>(seen_.created()); }
  void sample(double age_s) {
    look();
    ASSERT_FALSE(add_sample(path(), seen_, born() + age_s));
  }
  DeviceHistory device(unsigned dev = 0) {
    History history;
    EXPECT_FALSE(read_history(path(), seen_.ndev(), &history));
    return history.devices[dev];
  }

  Snapshot seen_;
};

TEST_F(HistoryTest, CoversTheTimeBetweenSamples) {
  create(2, 64 * kMiB);
  RankProcess rank(path());
  look();
  EXPECT_EQ(device().sampled_s, 0) << "nobody has looked yet";
  EXPECT_TRUE(rank.reserve(8 * kMiB));
  sample(10);
  EXPECT_EQ(device().sampled_s, 0) << "nobody knows what was before";
  sample(20);
  EXPECT_TRUE(rank.reserve(8 * kMiB));
  sample(25);
  EXPECT_EQ(device().sampled_s, 15);
  EXPECT_EQ(device().byte_seconds, (10 * 8 + 5 * 12) * static_cast<double>(kMiB));
  EXPECT_EQ(device(1).sampled_s, 15);
  EXPECT_EQ(device(1).byte_seconds, 0);
}

TEST_F(HistoryTest, PausesThatAreTooLongAreNotCovered) {
  create(1, 64 * kMiB);
  sample(1);
  sample(11);
  sample(11 + kLongestPause_s + 1);
  EXPECT_EQ(device().sampled_s, 10);
  sample(11 + kLongestPause_s + 6);
  EXPECT_EQ(device().sampled_s, 15);
  sample(3);  // somebody set the clock
  EXPECT_EQ(device().sampled_s, 15);
}

TEST_F(HistoryTest, LimitsThatWereChangedAreNoted) {
  create(2, 64 * kMiB);
  RankProcess rank(path());
  const auto change = [&](std::uint64_t limit) {
    Snapshot before;
    ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &before));
    LimitChange change;
    change.dev = 0;
    change.memory_limit = limit;
    ASSERT_FALSE(change_limits(path().c_str(), Trust::root_or_self, change));
    look();
    ASSERT_FALSE(note_change(path(), before, seen_));
  };
  EXPECT_FALSE(rank.reserve(65 * kMiB));
  change(128 * kMiB);
  EXPECT_FALSE(rank.reserve(129 * kMiB));
  change(32 * kMiB);
  EXPECT_FALSE(rank.reserve(33 * kMiB));
  EXPECT_EQ(device().first_limit, 64 * kMiB);
  EXPECT_EQ(device().highest_limit, 128 * kMiB);
  EXPECT_EQ(device().highest_sm, 100u);
  EXPECT_EQ(device().refused_before, 2u);
  EXPECT_EQ(device(1).first_limit, 0u);
}

TEST_F(HistoryTest, DamageIsNoHistoryAndNoLinkIsFollowed) {
  create(1, 64 * kMiB);
  sample(1);
  sample(10);
  EXPECT_EQ(device().sampled_s, 9);
  std::filesystem::resize_file(path() + "/history", 20);
  EXPECT_EQ(device().sampled_s, 0);
  std::ofstream(path() + "/history") << std::string(200, 'x');
  EXPECT_EQ(device().sampled_s, 0);
  std::filesystem::remove(path() + "/history");
  std::filesystem::create_symlink("/dev/zero", path() + "/history");
  look();
  EXPECT_TRUE(add_sample(path(), seen_, born() + 20));
  EXPECT_EQ(device().sampled_s, 0);
}

TEST_F(HistoryTest, GoesWithItsRegion) {
  create(1, 64 * kMiB);
  sample(10);
  EXPECT_FALSE(Region::remove(directory_.path().c_str(), "7"));
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_TRUE(add_sample(path(), seen_, born() + 20));
}

}  // namespace
}  // namespace vgpu::test
