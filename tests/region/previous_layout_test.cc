// A job that was started before an update: its files are of layout 1, its ranks too, and both stay as they are. New tools
// look at it and steer it, and new ranks of its later steps share it.
#include "support.h"
#include "v1/rank.h"

namespace vgpu::test {
namespace {

constexpr std::uint64_t kLimit = 64 * kMiB;
constexpr unsigned kData = 2;

class PreviousLayoutTest : public RegionTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(mkdir(path().c_str(), 0755), 0);
    ASSERT_TRUE(v1::write_region(path(), 7, geteuid(), kLimit));
    ASSERT_NO_FATAL_FAILURE(attach(&region_));
  }

  static v1::Self identify() {
    const SelfIdentity self = identify_self();
    return {static_cast<std::uint64_t>(self.pid), self.start_time, self.namespaces};
  }
  // An old rank in a process of its own.
  pid_t spawn_old(const std::function<int(v1::Rank &)> &body) {
    return spawn([&] {
      v1::Rank rank;
      return rank.attach(path(), identify()) ? body(rank) : 90;
    });
  }
  void read(Snapshot *snapshot, Detail detail = Detail::memory) {
    const Error error = Snapshot::read(path().c_str(), Trust::root_or_self, detail, snapshot);
    ASSERT_FALSE(error) << error.text;
  }
};

TEST_F(PreviousLayoutTest, NewToolsReadAnOldRegion) {
  EXPECT_EQ(region_.job().job_id, 7u);
  EXPECT_EQ(region_.memory_limit(0), kLimit);
  EXPECT_FALSE(region_.usage().has_appendix());
  v1::Rank old;
  ASSERT_TRUE(old.attach(path(), identify()));
  ASSERT_TRUE(old.reserve(kData, 5 * kMiB));
  Snapshot snapshot;
  ASSERT_NO_FATAL_FAILURE(read(&snapshot, Detail::liveness));
  ASSERT_EQ(snapshot.ranks(), 1u);
  EXPECT_EQ(snapshot.rank(0).verdict, Verdict::alive);
  EXPECT_EQ(snapshot.memory(0, 0, Kind::data), 5 * kMiB);
  const DeviceSnapshot &device = snapshot.device(0);
  EXPECT_TRUE(device.ranks_add_up);
  EXPECT_EQ(device.memory_used, 5 * kMiB);
  EXPECT_EQ(device.memory_living, 5 * kMiB);
  EXPECT_STREQ(device.identity.uuid, "GPU-v1");
  EXPECT_EQ(device.sm_percent, 100u);
  EXPECT_EQ(device.context.source, ContextSource::unknown);
  EXPECT_EQ(device.usable_bytes, 0u) << "not known";
  EXPECT_EQ(device.block_bytes, 0u);
  EXPECT_EQ(device.idle, 0u);
}

TEST_F(PreviousLayoutTest, ANewLimitHoldsForOldRanks) {
  v1::Rank old;
  ASSERT_TRUE(old.attach(path(), identify()));
  LimitChange change;
  change.memory_limit = 4 * kMiB;
  const Error error = change_limits(path().c_str(), Trust::root_or_self, change);
  ASSERT_FALSE(error) << error.text;
  EXPECT_FALSE(old.reserve(kData, 5 * kMiB));
  EXPECT_TRUE(old.reserve(kData, 4 * kMiB));
}

TEST_F(PreviousLayoutTest, ADeadOldRankIsSweptAndItsSlotTakenByANewOne) {
  const pid_t child = spawn_old([](v1::Rank &rank) {
    if (!rank.reserve(kData, kLimit)) return 1;
    raise(SIGKILL);
    return 2;
  });
  EXPECT_TRUE(WIFSIGNALED(wait_for(child)));
  EXPECT_EQ(used(), kLimit);
  Snapshot snapshot;
  ASSERT_NO_FATAL_FAILURE(read(&snapshot, Detail::liveness));
  EXPECT_EQ(snapshot.device(0).memory_living, 0u);
  unsigned reclaimed = 0;
  ASSERT_FALSE(sweep_region(path().c_str(), Trust::root_or_self, &reclaimed));
  EXPECT_EQ(reclaimed, 1u);
  EXPECT_EQ(used(), 0u);
  RankProcess successor(path());
  EXPECT_EQ(successor.slot(), 1u);
  EXPECT_TRUE(successor.reserve(kLimit));
}

TEST_F(PreviousLayoutTest, ANewRankDoesWithoutTheAppendix) {
  Rank rank;
  ASSERT_FALSE(Rank::attach(region_, &rank));
  ASSERT_EQ(rank.try_to_reserve(0, Kind::other, 2 * kUsualBlock), Grant::granted);
  EXPECT_FALSE(rank.top_up_idle(0, kUsualBlock));
  EXPECT_FALSE(rank.use_idle(0, kUsualBlock));
  rank.add_idle(0, kUsualBlock);
  EXPECT_EQ(used(), kUsualBlock) << "an empty block is given back";
  EXPECT_EQ(rank.idle(0), 0u);
  EXPECT_EQ(rank.give_up_idle(0), 0u);
  rank.begin_context(0);
  ASSERT_EQ(rank.force(0, Kind::context, 6 * kMiB), Grant::granted);
  rank.end_context(0);
  const RestMark mark = mark_rest(region_.usage(), 0, rank.slot());
  EXPECT_FALSE(correct_context(region_.usage(), 0, {rank.slot(), kMiB, mark}, 0));
  EXPECT_TRUE(rank.take_probe(0, 500));
  rank.end_probe(0);
  EXPECT_FALSE(rank.lead_looking(0));
  rank.note_exported(0, kMiB);
  EXPECT_EQ(rank.exported_by_others(0), 0u);
  EXPECT_EQ(rank.context_figure(0).bytes, 640 * kMiB);
  EXPECT_EQ(rank.context_figure(0).source, ContextSource::cautious);
  rank.note_context(0, 300 * kMiB);
  EXPECT_EQ(rank.context_figure(0).bytes, 300 * kMiB);
  EXPECT_EQ(rank.memory_held(0), kUsualBlock + 6 * kMiB);
  expect_consistent();
}

TEST_F(PreviousLayoutTest, OldAndNewRanksShareOneExactTotal) {
  Shared<std::atomic<bool>> stop;
  constexpr unsigned kRanks = 4;
  pid_t children[kRanks];
  for (unsigned i = 0; i < kRanks; ++i) {
    const auto work = [&](const auto &reserve, const auto &release) {
      while (!stop->load()) {
        const std::uint64_t bytes = (1 + i) * 3 * kMiB;
        if (reserve(bytes)) release(bytes);
      }
      return reserve((i + 1) * kMiB) ? 0 : 1;
    };
    if (i % 2 == 0) {
      children[i] = spawn_old([&](v1::Rank &rank) {
        return work([&](std::uint64_t bytes) { return rank.reserve(kData, bytes); },
                    [&](std::uint64_t bytes) { rank.release(kData, bytes); });
      });
    } else {
      children[i] = spawn([&] {
        Rank rank;
        if (Rank::attach(region_, &rank)) return 91;
        return work([&](std::uint64_t bytes) { return rank.try_to_reserve(0, Kind::data, bytes) == Grant::granted; },
                    [&](std::uint64_t bytes) { rank.release(0, Kind::data, bytes); });
      });
    }
  }
  const Stopwatch watch;
  unsigned pictures = 0;
  while (watch.wall_ms() < 300) {
    Snapshot snapshot;
    ASSERT_NO_FATAL_FAILURE(read(&snapshot));
    pictures += snapshot.device(0).ranks_add_up;
    EXPECT_LE(snapshot.device(0).memory_used, kLimit);
    LimitChange change;
    change.memory_limit = kLimit;
    ASSERT_FALSE(change_limits(path().c_str(), Trust::root_or_self, change));
  }
  stop->store(true);
  // They end holding 1, 2, 3 and 4 MiB, and nobody has swept yet.
  for (const pid_t child : children) EXPECT_TRUE(exited_with(wait_for(child), 0));
  EXPECT_GT(pictures, 0u);
  EXPECT_EQ(used(), 10 * kMiB);
  expect_consistent();
  ASSERT_FALSE(sweep_region(path().c_str(), Trust::root_or_self, nullptr));
  EXPECT_EQ(used(), 0u);
}

TEST_F(PreviousLayoutTest, AnOldRegionIsRemoved) {
  ASSERT_FALSE(Region::remove(directory_.path().c_str(), "7"));
  EXPECT_NE(access(path().c_str(), F_OK), 0);
}

TEST_F(PreviousLayoutTest, ALimitsFileAndAUsageFileOfDifferentLayoutsAreNotARegion) {
  ASSERT_EQ(truncate((path() + "/usage").c_str(), static_cast<off_t>(usage_size(1))), 0);
  Region region;
  EXPECT_EQ(Region::attach(path().c_str(), Trust::root_or_self, &region).fault, Fault::truncated);
}

}  // namespace
}  // namespace vgpu::test
