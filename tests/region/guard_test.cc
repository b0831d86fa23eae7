// What lies in the appendix: idle blocks and who may take them, contexts that others correct, leases, exports, peaks.
#include "region/guard.h"
#include "support.h"

namespace vgpu::test {
namespace {

constexpr std::uint64_t kBlock = kUsualBlock;
constexpr std::uint64_t kLimit = 8 * kBlock;

class GuardTest : public RegionTest {
 protected:
  void SetUp() override {
    create(1, kLimit);
    ASSERT_FALSE(Rank::attach(region_, &rank_));
  }
  DeviceSnapshot look(Detail detail = Detail::memory) {
    Snapshot snapshot;
    const Error error = Snapshot::read(path().c_str(), Trust::root_or_self, detail, &snapshot);
    EXPECT_FALSE(error) << error.text;
    return snapshot.device(0);
  }
  RestMark mark(const Rank &rank) { return mark_rest(region_.usage(), 0, rank.slot()); }
  bool correct(const Rank &rank, std::uint64_t bytes, std::uint64_t least = 0) {
    return correct_context(region_.usage(), 0, {rank.slot(), bytes, mark(rank)}, least);
  }

  Rank rank_;
};

TEST_F(GuardTest, ABlockIsChargedAheadUsedAndEmptied) {
  EXPECT_FALSE(rank_.use_idle(0, kBlock)) << "nothing is charged before it is needed";
  ASSERT_TRUE(rank_.top_up_idle(0, kBlock));
  EXPECT_TRUE(rank_.top_up_idle(0, kBlock)) << "one is idle already";
  EXPECT_EQ(used(), kBlock);
  EXPECT_EQ(rank_.idle(0), kBlock);
  EXPECT_TRUE(rank_.use_idle(0, kBlock));
  EXPECT_EQ(rank_.idle(0), 0u);
  EXPECT_FALSE(rank_.use_idle(0, kBlock));
  rank_.add_idle(0, kBlock);
  EXPECT_EQ(rank_.idle(0), kBlock);
  EXPECT_EQ(used(), kBlock) << "the blocks move between idle and used; the total does not";
  expect_consistent();
}

TEST_F(GuardTest, AtMostTwoBlocksStayIdle) {
  ASSERT_EQ(rank_.try_to_reserve(0, Kind::other, 4 * kBlock), Grant::granted);
  for (std::uint64_t emptied = 1; emptied <= 4; ++emptied) {
    rank_.add_idle(0, kBlock);
    EXPECT_EQ(rank_.idle(0), std::min<std::uint64_t>(emptied, 2) * kBlock);
  }
  EXPECT_EQ(used(), 2 * kBlock);
}

TEST_F(GuardTest, TheLimitHoldsForIdleBlocksToo) {
  ASSERT_EQ(rank_.try_to_reserve(0, Kind::data, kLimit), Grant::granted);
  EXPECT_FALSE(rank_.top_up_idle(0, kBlock));
  EXPECT_EQ(rank_.idle(0), 0u);
  EXPECT_EQ(used(), kLimit);
}

TEST_F(GuardTest, NobodyIsRefusedWhileSomethingIsIdle) {
  Rank other;
  ASSERT_FALSE(Rank::attach(region_, &other));
  ASSERT_TRUE(other.top_up_idle(0, kBlock));
  ASSERT_TRUE(rank_.top_up_idle(0, kBlock));
  EXPECT_EQ(rank_.try_to_reserve(0, Kind::data, kLimit), Grant::granted);
  EXPECT_EQ(used(), kLimit);
  EXPECT_EQ(other.idle(0), 0u);
  EXPECT_FALSE(other.use_idle(0, kBlock)) << "it was taken";
  EXPECT_EQ(rank_.try_to_reserve(0, Kind::data, 1), Grant::refused);
  expect_consistent();
}

TEST_F(GuardTest, WhatIsUsedIsNotTaken) {
  Rank other;
  ASSERT_FALSE(Rank::attach(region_, &other));
  ASSERT_TRUE(other.top_up_idle(0, kBlock));
  ASSERT_TRUE(other.use_idle(0, kBlock));
  EXPECT_EQ(rank_.give_up_idle(0), 0u);
  EXPECT_EQ(rank_.try_to_reserve(0, Kind::data, kLimit), Grant::refused);
  EXPECT_EQ(other.memory_held(0), kBlock);
}

TEST_F(GuardTest, OtherMemoryOfTheSameKindLeavesIdleBlocksAlone) {
  ASSERT_TRUE(rank_.top_up_idle(0, kBlock));
  ASSERT_EQ(rank_.force(0, Kind::other, kMiB), Grant::granted);
  EXPECT_EQ(rank_.idle(0), kBlock);
  rank_.release(0, Kind::other, kMiB);
  EXPECT_EQ(rank_.idle(0), kBlock);
  EXPECT_EQ(rank_.try_to_reserve(0, Kind::other, kLimit), Grant::granted) << "its own idle block is given up";
  EXPECT_EQ(rank_.idle(0), 0u);
  EXPECT_EQ(rank_.memory_held(0), kLimit);
}

TEST_F(GuardTest, AStoppedRanksIdleBlockIsTaken) {
  Shared<bool> ready;
  const pid_t child = spawn([&] {
    Rank rank;
    if (Rank::attach(region_, &rank) || !rank.top_up_idle(0, kBlock)) return 1;
    *ready = true;
    raise(SIGSTOP);
    return rank.use_idle(0, kBlock) ? 2 : 0;
  });
  ASSERT_TRUE(WIFSTOPPED(wait_for(child, WUNTRACED)));
  EXPECT_EQ(rank_.try_to_reserve(0, Kind::data, kLimit), Grant::granted);
  kill(child, SIGCONT);
  EXPECT_TRUE(exited_with(wait_for(child), 0));
}

// ---- contexts -------------------------------------------------------------------------------------------------------

TEST_F(GuardTest, ASleepingRanksContextIsCorrectedBothWays) {
  ASSERT_EQ(rank_.force(0, Kind::context, 6 * kMiB), Grant::granted);
  ASSERT_EQ(rank_.try_to_reserve(0, Kind::data, kMiB), Grant::granted);
  ASSERT_TRUE(rank_.top_up_idle(0, kBlock));
  EXPECT_TRUE(correct(rank_, 4 * kMiB));
  EXPECT_EQ(rank_.memory_held(0, Kind::context), 3 * kMiB) << "what is shown, without the data; idle is not there";
  EXPECT_FALSE(correct(rank_, 4 * kMiB)) << "there is nothing more to correct";
  EXPECT_TRUE(correct(rank_, kLimit + kMiB)) << "what is there is charged, whatever the limit";
  EXPECT_EQ(used(), kLimit + kMiB + kBlock);
  EXPECT_TRUE(correct(rank_, kMiB, 2 * kMiB));
  EXPECT_EQ(rank_.memory_held(0, Kind::context), 2 * kMiB);
  EXPECT_TRUE(correct(rank_, 0));
  EXPECT_EQ(rank_.memory_held(0, Kind::context), kUnitBytes) << "never nothing";
  EXPECT_EQ(rank_.memory_held(0), kMiB + kBlock + kUnitBytes);
  expect_consistent();
  rank_.release(0, Kind::context, 6 * kMiB);
  EXPECT_EQ(rank_.memory_held(0, Kind::context), 0u) << "its owner goes on from there";
}

TEST_F(GuardTest, OldEvidenceCorrectsNothing) {
  ASSERT_EQ(rank_.force(0, Kind::context, 6 * kMiB), Grant::granted);
  const SeenRank seen = {rank_.slot(), kMiB, mark(rank_)};
  rank_.release(0, Kind::context, kMiB);
  EXPECT_FALSE(correct_context(region_.usage(), 0, seen, 0));
  const SeenRank data_changed = {rank_.slot(), kMiB, mark(rank_)};
  ASSERT_EQ(rank_.try_to_reserve(0, Kind::data, kMiB), Grant::granted);
  EXPECT_FALSE(correct_context(region_.usage(), 0, data_changed, 0));
  EXPECT_EQ(rank_.memory_held(0, Kind::context), 5 * kMiB);
}

TEST_F(GuardTest, NobodyCorrectsAContextThatIsBeingMade) {
  rank_.begin_context(0);
  ASSERT_EQ(rank_.force(0, Kind::context, 6 * kMiB), Grant::granted);
  EXPECT_FALSE(correct(rank_, kMiB));
  rank_.begin_context(0);
  rank_.end_context(0);
  EXPECT_FALSE(correct(rank_, kMiB)) << "another thread still makes one";
  rank_.end_context(0);
  EXPECT_TRUE(correct(rank_, kMiB));
}

TEST_F(GuardTest, RootSettlesARegionByASnapshotsMarks) {
  RankProcess sleeper(path());
  ASSERT_TRUE(sleeper.reserve(6 * kMiB, 0, Kind::context));
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  SeenRank seen[2];
  for (unsigned i = 0; i < snapshot.ranks(); ++i) seen[i] = {snapshot.rank(i).slot, 4 * kMiB, snapshot.mark(i, 0)};
  unsigned corrected = 0;
  const Error error = settle_region(path().c_str(), Trust::root_or_self, 0, seen, snapshot.ranks(), &corrected);
  ASSERT_FALSE(error) << error.text;
  EXPECT_EQ(corrected, 1u) << "the other one never had a context";
  EXPECT_EQ(used(), 4 * kMiB);
  EXPECT_EQ(settle_region(path().c_str(), Trust::root_or_self, 1, seen, 0, nullptr).fault, Fault::invalid);
}

// ---- figures, leases, exports ---------------------------------------------------------------------------------------

class FigureTest : public RegionTest {
 protected:
  ContextFigure figure(const ContextFigure &context, std::uint64_t noted = 0, std::uint64_t memory = 16384 * kMiB) {
    std::vector<DeviceSpec> devices = make_devices(1, kLimit);
    devices[0].identity.memory_bytes = memory;
    devices[0].context = context;
    EXPECT_FALSE(Region::remove(directory_.path().c_str(), "7"));
    EXPECT_FALSE(Region::create(directory_.path().c_str(), "7", make_spec(devices)));
    Region region;
    attach(&region);
    Rank rank;
    EXPECT_FALSE(Rank::attach(region, &rank));
    if (noted != 0) rank.note_context(0, noted);
    return rank.context_figure(0);
  }
  static void expect(const ContextFigure &got, std::uint64_t bytes, ContextSource source) {
    EXPECT_EQ(got.bytes, bytes);
    EXPECT_EQ(got.source, source);
  }
};

TEST_F(FigureTest, WhoKnowsBestIsBelieved) {
  const std::uint64_t noted = 300 * kMiB;
  expect(figure({400 * kMiB, ContextSource::site}, noted), 400 * kMiB, ContextSource::site);
  expect(figure({410 * kMiB, ContextSource::measured}, noted), 410 * kMiB, ContextSource::measured);
  expect(figure({500 * kMiB, ContextSource::cautious}, noted), noted, ContextSource::measured);
  expect(figure({500 * kMiB, ContextSource::cautious}), 500 * kMiB, ContextSource::cautious);
  expect(figure({}, noted), noted, ContextSource::measured);
  expect(figure({}), 640 * kMiB, ContextSource::cautious);
  expect(figure({}, 0, 100 * kMiB), 14 * kMiB, ContextSource::cautious);
  expect(figure({}, 0, 0), 640 * kMiB, ContextSource::cautious);
  expect(figure({}, 20000 * kMiB), 640 * kMiB, ContextSource::cautious);
}

TEST_F(RegionTest, ARegionKeepsWhatIsKnownOfItsDevices) {
  std::vector<DeviceSpec> devices = make_devices(2, kLimit);
  devices[0].identity.memory_bytes = devices[1].identity.memory_bytes = 100 * kMiB;
  devices[0].context = {436 * kMiB, ContextSource::measured};
  devices[0].usable_bytes = 90 * kMiB;
  devices[0].block_bytes = 1 << 16;
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "7", make_spec(devices)));
  attach(&region_);
  EXPECT_EQ(region_.block_bytes(0), 1u << 16);
  EXPECT_EQ(region_.usable_bytes(0), 90 * kMiB);
  EXPECT_EQ(region_.block_bytes(1), kUsualBlock);
  EXPECT_EQ(region_.usable_bytes(1), 100 * kMiB);
  EXPECT_EQ(region_.device(0).identity.context_mib, 436u);
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  EXPECT_EQ(snapshot.device(0).context.bytes, 436 * kMiB);
  EXPECT_EQ(snapshot.device(0).context.source, ContextSource::measured);
  EXPECT_EQ(snapshot.device(0).usable_bytes, 90 * kMiB);
  EXPECT_EQ(snapshot.device(0).block_bytes, 1u << 16);
  EXPECT_EQ(snapshot.device(1).context.source, ContextSource::unknown);
}

TEST_F(GuardTest, ALeaseIsOneRanksAndEndsByItself) {
  Rank other;
  ASSERT_FALSE(Rank::attach(region_, &other));
  EXPECT_TRUE(rank_.take_probe(0, 50));
  EXPECT_FALSE(other.take_probe(0, 50));
  EXPECT_TRUE(rank_.take_probe(0, 50)) << "it is still its own";
  other.end_probe(0);
  EXPECT_FALSE(other.take_probe(0, 50)) << "only its holder can end it";
  rank_.end_probe(0);
  EXPECT_TRUE(other.take_probe(0, 50));
  sleep_ms(70);
  EXPECT_TRUE(rank_.take_probe(0, 50));
  EXPECT_TRUE(rank_.lead_looking(0));
  EXPECT_FALSE(other.lead_looking(0));
}

TEST_F(GuardTest, WhatOthersExportedIsKnown) {
  Rank other;
  ASSERT_FALSE(Rank::attach(region_, &other));
  ASSERT_EQ(other.try_to_reserve(0, Kind::data, 4 * kMiB), Grant::granted);
  other.note_exported(0, 3 * kMiB);
  other.note_exported(0, -static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(rank_.exported_by_others(0), 2 * kMiB);
  EXPECT_EQ(other.exported_by_others(0), 0u);
  other.note_exported(0, 50 * kMiB);
  EXPECT_EQ(rank_.exported_by_others(0), 4 * kMiB) << "nobody shares more than they hold";
  other.note_exported(0, -1000 * static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(rank_.exported_by_others(0), 0u);
}

TEST_F(GuardTest, ADeadRanksExportsAreNotItsSuccessors) {
  const pid_t child = spawn([&] {
    Rank rank;
    if (Rank::attach(region_, &rank)) return 1;
    if (rank.try_to_reserve(0, Kind::data, kMiB) != Grant::granted) return 2;
    rank.note_exported(0, kMiB);
    raise(SIGKILL);
    return 0;
  });
  wait_for(child);
  EXPECT_EQ(rank_.exported_by_others(0), kMiB);
  EXPECT_EQ(rank_.try_to_reserve(0, Kind::data, kLimit), Grant::granted) << "sweeps";
  RankProcess successor(path());
  ASSERT_TRUE(successor.attached());
  rank_.release(0, Kind::data, kLimit);
  ASSERT_TRUE(successor.reserve(kMiB));
  EXPECT_EQ(rank_.exported_by_others(0), 0u);
}

// ---- what readers see -----------------------------------------------------------------------------------------------

TEST_F(GuardTest, ThePeakHasNothingThatNeverWas) {
  ASSERT_EQ(rank_.try_to_reserve(0, Kind::data, 3 * kMiB), Grant::granted);
  ASSERT_EQ(rank_.try_to_reserve(0, Kind::data, 10 * kMiB), Grant::granted);
  rank_.take_back(0, Kind::data, 10 * kMiB);
  ASSERT_EQ(rank_.force(0, Kind::context, 100 * kMiB), Grant::granted);
  EXPECT_TRUE(correct(rank_, 4 * kMiB));
  EXPECT_EQ(look().memory_peak, 4 * kMiB) << "neither a failed call nor a guess was ever there";
  rank_.release(0, Kind::data, 3 * kMiB);
  rank_.release(0, Kind::context, kMiB);
  EXPECT_EQ(look().memory_peak, 4 * kMiB);
}

TEST_F(GuardTest, ThePeakHasNoIdleBlocks) {
  for (int i = 0; i < 3; ++i) {
    if (!rank_.use_idle(0, kBlock)) {
      ASSERT_EQ(rank_.try_to_reserve(0, Kind::other, kBlock), Grant::granted);
    }
    ASSERT_TRUE(rank_.top_up_idle(0, kBlock));
    rank_.add_idle(0, kBlock);
  }
  EXPECT_EQ(rank_.idle(0), 2 * kBlock);
  const DeviceSnapshot device = look();
  EXPECT_EQ(device.memory_peak, kBlock);
  EXPECT_EQ(device.memory_used, 2 * kBlock);
  EXPECT_EQ(device.idle, 2 * kBlock);
}

TEST_F(GuardTest, ADeadRankLeavesItsPeak) {
  const pid_t child = spawn([&] {
    Rank rank;
    if (Rank::attach(region_, &rank) || rank.try_to_reserve(0, Kind::data, 5 * kMiB) != Grant::granted) return 1;
    raise(SIGKILL);
    return 0;
  });
  wait_for(child);
  EXPECT_EQ(look().memory_used, 5 * kMiB);
  EXPECT_EQ(look().memory_living, 5 * kMiB) << "nobody asked who is alive";
  EXPECT_EQ(look(Detail::tokens).memory_living, 0u) << "the dead do not count";
  EXPECT_EQ(rank_.try_to_reserve(0, Kind::data, kMiB), Grant::granted);
  unsigned reclaimed = 0;
  ASSERT_FALSE(sweep_region(path().c_str(), Trust::root_or_self, &reclaimed));
  EXPECT_EQ(reclaimed, 1u);
  const DeviceSnapshot device = look(Detail::tokens);
  EXPECT_EQ(device.memory_living, kMiB);
  EXPECT_EQ(device.memory_peak, 6 * kMiB);
}

}  // namespace
}  // namespace vgpu::test
