// What is shown as used: neither the dead nor blocks that hold nothing.
#include "node/used_memory.h"

#include "region/support.h"

namespace vgpu::node {

using namespace test;
namespace {

TEST(UsedMemory, IsThatOfTheLivingAndNothingIdle) {
  TemporaryDirectory directory;
  DeviceSpec device;
  device.memory_limit = 100 * kMiB;
  const RegionSpec spec = {7, geteuid(), false, 1, &device};
  ASSERT_FALSE(Region::create(directory.path().c_str(), "7", spec));
  const std::string path = directory.path() + "/7";
  Region region;
  Rank rank;
  ASSERT_FALSE(Region::attach(path.c_str(), Trust::root_or_self, &region));
  ASSERT_FALSE(Rank::attach(region, &rank));
  ASSERT_EQ(rank.try_to_reserve(0, Kind::data, 10 * kMiB), Grant::granted);
  ASSERT_EQ(rank.try_to_reserve(0, Kind::other, 4 * kMiB), Grant::granted);
  ASSERT_TRUE(rank.top_up_idle(0, 2 * kMiB));
  RankProcess other(path);
  ASSERT_TRUE(other.reserve(20 * kMiB));

  Snapshot seen;
  ASSERT_FALSE(Snapshot::read(path.c_str(), Trust::root_or_self, Detail::tokens, &seen));
  EXPECT_EQ(seen.device(0).memory_used, 36 * kMiB);
  EXPECT_EQ(used_memory(seen, 0), 34 * kMiB);
  const unsigned own = seen.rank(0).slot == rank.slot() ? 0 : 1;
  EXPECT_EQ(used_memory(seen, own, 0, Kind::data), 10 * kMiB);
  EXPECT_EQ(used_memory(seen, own, 0, Kind::other), 4 * kMiB);
  EXPECT_EQ(seen.memory(own, 0, Kind::other), 6 * kMiB);

  other.end(SIGKILL);
  ASSERT_FALSE(Snapshot::read(path.c_str(), Trust::root_or_self, Detail::tokens, &seen));
  EXPECT_EQ(used_memory(seen, 0), 14 * kMiB);
}

}  // namespace
}  // namespace vgpu::node
