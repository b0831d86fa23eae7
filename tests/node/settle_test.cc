// Root settles contexts of ranks that sleep.
#include "node/settle.h"

#include "region/support.h"

namespace vgpu::node {

using namespace test;
namespace {

class Settle : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "regions of jobs are root's";
    DeviceSpec device;
    std::snprintf(device.identity.uuid, sizeof device.identity.uuid, "GPU-a");
    device.memory_limit = 4096 * kMiB;
    const RegionSpec spec = {7, 0, false, 1, &device};
    const Error error = Region::create(directory_.path().c_str(), "7", spec);
    ASSERT_FALSE(error) << error.text;
    rank_ = std::make_unique<RankProcess>(path());
    ASSERT_TRUE(rank_->attached());
    ASSERT_TRUE(rank_->reserve(64 * kMiB, 0, Kind::context));
    ASSERT_TRUE(rank_->reserve(100 * kMiB));
  }
  std::string path() const { return directory_.path() + "/7"; }
  void look(Snapshot *snapshot) const {
    const Error error = Snapshot::read(path().c_str(), Trust::root, Detail::tokens, snapshot);
    ASSERT_FALSE(error) << error.text;
  }
  std::uint64_t context() const {
    Snapshot snapshot;
    look(&snapshot);
    return snapshot.memory(0, 0, Kind::context);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<RankProcess> rank_;
};

TEST_F(Settle, ARankAtRestIsChargedWhatNvmlShows) {
  Snapshot earlier, now;
  look(&earlier);
  sleep_ms(kRest_ms + 10);
  look(&now);
  const auto settle = [&](std::uint64_t mib) {
    return settle_contexts(path(), earlier, now,
                           {{"GPU-b", rank_->pid(), 1, -1}, {"GPU-a", rank_->pid(), mib * kMiB, -1}});
  };
  EXPECT_EQ(settle(0), 0u) << "NVML does not know";
  EXPECT_EQ(context(), 64 * kMiB);
  EXPECT_EQ(settle(528), 1u);
  EXPECT_EQ(context(), 428 * kMiB);
  EXPECT_EQ(rank_->memory_used(), 528 * kMiB);
  EXPECT_EQ(settle(300), 0u) << "that was seen before the correction";
}

TEST_F(Settle, WhoDidAnythingOrIsNotListedIsLeftAlone) {
  Snapshot earlier, soon, now;
  look(&earlier);
  look(&soon);
  const std::vector<GpuProcess> processes = {{"GPU-a", rank_->pid(), 528 * kMiB, -1}};
  EXPECT_EQ(settle_contexts(path(), earlier, soon, processes), 0u) << "it may be within a call";
  sleep_ms(kRest_ms + 10);
  look(&now);
  EXPECT_EQ(settle_contexts(path(), earlier, now, {{"GPU-a", 1, 528 * kMiB, -1}}), 0u) << "that is another process";
  ASSERT_TRUE(rank_->reserve(kMiB));
  look(&now);
  EXPECT_EQ(settle_contexts(path(), earlier, now, processes), 0u) << "it has allocated";
  EXPECT_EQ(context(), 64 * kMiB);
}

}  // namespace
}  // namespace vgpu::node
