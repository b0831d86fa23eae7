// Readers: one picture while everybody writes, and alive whatever the file's owner does to it.
#include <fcntl.h>

#include <random>

#include "region/files.h"
#include "region/seqlock.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

class SnapshotTest : public RegionTest {
 protected:
  Error read(Snapshot *snapshot) {
    return Snapshot::read(path().c_str(), Trust::root_or_self, Detail::liveness, snapshot);
  }
  std::string usage_file() const { return path() + "/usage"; }
};

TEST_F(SnapshotTest, AnEmptyRegion) {
  create(3, kMiB);
  Snapshot snapshot;
  ASSERT_FALSE(read(&snapshot));
  EXPECT_EQ(snapshot.ndev(), 3u);
  EXPECT_EQ(snapshot.ranks(), 0u);
  EXPECT_EQ(snapshot.job().job_id, 7u);
  EXPECT_EQ(snapshot.device(2).memory_limit, kMiB);
  EXPECT_STREQ(snapshot.device(2).identity.uuid, "GPU-00000002");
  EXPECT_TRUE(snapshot.device(2).ranks_add_up);
}

TEST_F(SnapshotTest, ReadAgainAndAgainIntoTheSameObject) {
  create(1, 64 * kMiB);
  RankProcess rank(path());
  ASSERT_TRUE(rank.reserve(kMiB));
  Snapshot snapshot;
  for (int i = 0; i < 600; ++i) ASSERT_FALSE(read(&snapshot));
  EXPECT_EQ(snapshot.ranks(), 1u);
  EXPECT_EQ(snapshot.memory(0, 0, Kind::data), kMiB);
  ASSERT_FALSE(Region::remove(directory_.path().c_str(), "7"));
  EXPECT_TRUE(read(&snapshot));
  EXPECT_EQ(snapshot.ranks(), 0u) << "nothing is left of the last picture";
}

TEST_F(SnapshotTest, EveryRankWithItsState) {
  create(1, 64 * kMiB);
  RankProcess alive(path()), stopped(path()), dead(path());
  ASSERT_TRUE(alive.reserve(kMiB) && stopped.reserve(2 * kMiB) && dead.reserve(3 * kMiB));
  stopped.signal(SIGSTOP);
  dead.end(SIGKILL);
  Snapshot snapshot;
  ASSERT_FALSE(read(&snapshot));
  ASSERT_EQ(snapshot.ranks(), 3u);
  EXPECT_EQ(snapshot.device(0).memory_used, 6 * kMiB);
  EXPECT_TRUE(snapshot.device(0).ranks_add_up);
  for (unsigned i = 0; i < 3; ++i) {
    const unsigned slot = snapshot.rank(i).slot;
    const Verdict expected = slot == dead.slot() ? Verdict::dead : Verdict::alive;
    EXPECT_EQ(snapshot.rank(i).verdict, expected);
    const std::uint64_t held = slot == alive.slot() ? kMiB : slot == stopped.slot() ? 2 * kMiB : 3 * kMiB;
    EXPECT_EQ(snapshot.memory(i, 0, Kind::data), held);
  }
  EXPECT_EQ(used(), 6 * kMiB) << "looking changes nothing";
}

TEST_F(SnapshotTest, OnePictureWhileRanksWrite) {
  create(1, 64 * kMiB);
  std::vector<pid_t> writers;
  for (int i = 0; i < 3; ++i) {
    writers.push_back(spawn([&] {
      Rank rank;
      if (Rank::attach(region_, &rank)) return 1;
      for (;;) {
        if (reserve(rank, 0, Kind::data, 3 * kMiB) == Grant::granted) rank.release(0, Kind::data, 3 * kMiB);
        if (reserve(rank, 0, Kind::module, kMiB) == Grant::granted) rank.release(0, Kind::module, kMiB);
      }
    }));
  }
  int exact = 0;
  for (int i = 0; i < 300; ++i) {
    Snapshot snapshot;
    ASSERT_FALSE(read(&snapshot));
    const DeviceSnapshot &device = snapshot.device(0);
    EXPECT_LE(device.memory_used, 64 * kMiB);
    if (!device.ranks_add_up) continue;
    ++exact;
    std::uint64_t sum = 0;
    for (unsigned rank = 0; rank < snapshot.ranks(); ++rank) {
      sum += snapshot.memory(rank, 0, Kind::data) + snapshot.memory(rank, 0, Kind::module);
    }
    EXPECT_EQ(sum, device.memory_used);
  }
  EXPECT_GT(exact, 0) << "no look found a quiet instant";
  for (const pid_t writer : writers) {
    kill(writer, SIGKILL);
    wait_for(writer);
  }
}

// Whatever the owner of the file does, a reader (root) gets a picture or a sentence: never a crash, never a hang.
TEST_F(SnapshotTest, SurvivesAnOwnerWhoTruncatesScribblesAndUnlinks) {
  create(2, 64 * kMiB);
  RankProcess rank(path());
  ASSERT_TRUE(rank.reserve(kMiB));
  const std::vector<char> original = [&] {
    std::vector<char> bytes(usage_size(2));
    const ScopedFd fd(open(usage_file().c_str(), O_RDONLY));
    EXPECT_EQ(pread(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  }();
  rank.signal(SIGSTOP);  // it would only die of SIGBUS
  const pid_t vandal = spawn([&] {
    std::mt19937_64 random(1);
    for (;;) {
      const ScopedFd fd(open(usage_file().c_str(), O_RDWR | O_CREAT, 0600));
      switch (random() % 4) {
        case 0:
          if (ftruncate(fd.get(), static_cast<off_t>(random() % (usage_size(2) + 8192))) != 0) return 1;
          break;
        case 1:
          unlink(usage_file().c_str());
          break;
        default: {
          std::vector<std::uint64_t> noise(64);
          for (auto &word : noise) word = random() % 3 == 0 ? ~std::uint64_t{0} : random();
          const std::size_t offset = sizeof(FileHeader) + random() % (usage_size(2) - 1024);
          if (pwrite(fd.get(), noise.data(), 512, static_cast<off_t>(offset)) < 0) return 1;
        }
      }
      // Every now and then whole again, so that reads get past the checks.
      const ScopedFd again(open(usage_file().c_str(), O_RDWR | O_CREAT, 0600));
      if (ftruncate(again.get(), static_cast<off_t>(usage_size(2))) != 0) return 1;
      if (pwrite(again.get(), original.data(), random() % 2 ? sizeof(FileHeader) : original.size(), 0) < 0) return 1;
    }
  });
  int pictures = 0, sentences = 0;
  const double end = now_ms() + 1500;
  while (now_ms() < end) {
    Snapshot snapshot;
    const double start = now_ms();
    if (const Error error = read(&snapshot)) {
      ++sentences;
      EXPECT_NE(error.text[0], '\0');
    } else {
      ++pictures;
    }
    EXPECT_LT(now_ms() - start, 1000);
    LimitChange change;
    change.memory_limit = 64 * kMiB;
    if (const Error error = change_limits(path().c_str(), Trust::root_or_self, change)) ++sentences;
    unsigned reclaimed = 0;
    if (const Error error = sweep_region(path().c_str(), Trust::root_or_self, &reclaimed)) ++sentences;
  }
  kill(vandal, SIGKILL);
  const int status = wait_for(vandal);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the vandal gave up: " << status;
  EXPECT_GT(pictures, 0);
  EXPECT_GT(sentences, 0);
}

TEST_F(SnapshotTest, RootSweepsForAJobThatHasNoLivingRank) {
  create(1, 64 * kMiB);
  {
    RankProcess a(path()), b(path());
    ASSERT_TRUE(a.reserve(kMiB) && b.reserve(2 * kMiB));
    a.end(SIGKILL);
    b.end(SIGKILL);
  }
  EXPECT_EQ(used(), 3 * kMiB);
  unsigned reclaimed = 0;
  ASSERT_FALSE(sweep_region(path().c_str(), Trust::root_or_self, &reclaimed));
  EXPECT_EQ(reclaimed, 2u);
  EXPECT_EQ(used(), 0u);
}

// ---- the informational seqlock --------------------------------------------------------------------------------------

TEST(SeqlockTest, ReadersSeeWholeBlocks) {
  Shared<SlotInfo> block;
  const pid_t writer = spawn([&]() -> int {
    for (std::uint64_t n = 0;; ++n) write_info(*block, {n, n, n, n, n, n});
  });
  int whole = 0;
  for (int i = 0; i < 20000; ++i) {
    InfoValues values;
    if (!try_read_info([&](InfoCopy *copy) { return copy_info(*block, copy); }, &values)) continue;
    ++whole;
    EXPECT_EQ(values.start_time, values.peak_units);
    EXPECT_EQ(values.host_pid, values.refused);
    EXPECT_EQ(values.launches, values.throttled_ns);
    EXPECT_EQ(values.launches, values.peak_units);
  }
  kill(writer, SIGKILL);
  wait_for(writer);
  EXPECT_GT(whole, 0);
}

TEST(SeqlockTest, ADeadWriterIsGivenUpOnAndReplaced) {
  Shared<SlotInfo> block;
  write_info(*block, {1, 2, 3, 4, 5, 6});
  block->seq.fetch_add(1);  // died in between
  InfoValues values;
  const double start = now_ms();
  EXPECT_FALSE(try_read_info([&](InfoCopy *copy) { return copy_info(*block, copy); }, &values));
  EXPECT_LT(now_ms() - start, 100);
  write_info(*block, {7, 7, 7, 7, 7, 7});
  EXPECT_TRUE(try_read_info([&](InfoCopy *copy) { return copy_info(*block, copy); }, &values));
  EXPECT_EQ(values.start_time, 7u);
}

}  // namespace
}  // namespace vgpu::test
