// The same code with ranks as threads, for ThreadSanitizer: every race on shared words is between atomics, and every
// plain field has one owner.
#include <atomic>
#include <random>
#include <thread>

#include "region/accounting.h"
#include "region/admin.h"
#include "region/seqlock.h"
#include "region/sweep.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

constexpr std::uint64_t kLimit = 64 * kMiB;

class ThreadsTest : public RegionTest {
 protected:
  void SetUp() override { create(2, kLimit); }

  static void run_together(std::vector<std::function<void()>> bodies) {
    std::vector<std::thread> threads;
    for (auto &body : bodies) threads.emplace_back(std::move(body));
    for (std::thread &thread : threads) thread.join();
  }
  static void churn(Rank &rank, unsigned seed, int rounds) {
    std::mt19937 random(seed);
    std::uint64_t held[2][kKinds] = {};
    for (int i = 0; i < rounds; ++i) {
      const unsigned dev = random() % 2;
      const unsigned kind = random() % kKinds;
      const std::uint64_t bytes = 512 * (1 + random() % 40000);
      if (held[dev][kind] >= bytes) {
        rank.release(dev, static_cast<Kind>(kind), bytes);
        held[dev][kind] -= bytes;
      } else if (reserve(rank, dev, static_cast<Kind>(kind), bytes) == Grant::granted) {
        held[dev][kind] += bytes;
      }
    }
    for (unsigned dev = 0; dev < 2; ++dev) {
      for (unsigned kind = 0; kind < kKinds; ++kind) rank.release(dev, static_cast<Kind>(kind), held[dev][kind]);
    }
  }
};

// Threads of one process use, charge and empty blocks; another rank takes what is idle and corrects their contexts.
TEST_F(ThreadsTest, ThreadsShareIdleBlocksWithAThief) {
  constexpr std::uint64_t kBlock = kUsualBlock;
  constexpr unsigned kThreads = 3;
  Rank rank;
  Rank thief;
  ASSERT_FALSE(Rank::attach(region_, &rank));
  ASSERT_FALSE(Rank::attach(region_, &thief));
  std::atomic<unsigned> running{kThreads};
  std::vector<std::function<void()>> bodies;
  for (unsigned i = 0; i < kThreads; ++i) {
    bodies.push_back([&] {
      for (int round = 0; round < 3000; ++round) {
        if (!rank.use_idle(0, kBlock) && rank.try_to_reserve(0, Kind::other, kBlock) != Grant::granted) continue;
        rank.top_up_idle(0, kBlock);
        rank.begin_context(0);
        if (rank.force(0, Kind::context, kMiB) == Grant::granted) rank.take_back(0, Kind::context, kMiB);
        rank.end_context(0);
        rank.add_idle(0, kBlock);
      }
      --running;
    });
  }
  unsigned corrected = 0;
  bodies.push_back([&] {
    while (running > 0) {
      thief.give_up_idle(0);
      const SeenRank seen = {rank.slot(), kMiB, mark_rest(region_.usage(), 0, rank.slot())};
      corrected += correct_context(region_.usage(), 0, seen, 0);
      EXPECT_LE(rank.idle(0), 2 * kBlock);
    }
  });
  run_together(std::move(bodies));
  thief.give_up_idle(0);
  rank.release(0, Kind::context, kLimit);
  EXPECT_EQ(used(), 0u) << "every block was used, idle or given back; " << corrected << " corrections";
  expect_consistent();
}

TEST_F(ThreadsTest, OneRankPerThread) {
  std::atomic<int> running{4};
  std::vector<std::function<void()>> bodies;
  for (unsigned i = 0; i < 4; ++i) {
    bodies.push_back([&, i] {
      Rank rank;
      ASSERT_FALSE(Rank::attach(region_, &rank));
      churn(rank, i, 3000);
      rank.note_launches(0, 10);
      --running;
      while (running > 0) rank.memory_used(0);  // stay until nobody needs us alive
    });
  }
  bodies.push_back([&] {  // a sweeper and reader, as root would be
    while (running > 0) {
      LivenessCheck liveness(region_.usage_path(), region_.usage());
      sweep(region_.usage(), liveness, kAllDevices);
      Snapshot snapshot;
      ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
      EXPECT_LE(snapshot.device(0).memory_used, kLimit);
    }
  });
  run_together(std::move(bodies));
  EXPECT_EQ(used(0), 0u);
  EXPECT_EQ(used(1), 0u);
  EXPECT_EQ(region_.usage().device(0).launches.load(), 40u);
}

TEST_F(ThreadsTest, OneRankSharedByThreads) {
  Rank rank;
  ASSERT_FALSE(Rank::attach(region_, &rank));
  std::vector<std::function<void()>> bodies;
  for (unsigned i = 0; i < 4; ++i) {
    bodies.push_back([&] {
      for (int round = 0; round < 5000; ++round) {
        const unsigned dev = round % 2;
        if (reserve(rank, dev, Kind::data, kMiB) == Grant::granted) rank.release(dev, Kind::data, kMiB);
        if (round % 100 == 0) rank.note_throttled(dev, 1);
        if (round % 50 == 0) rank.memory_used(dev);
      }
    });
  }
  run_together(std::move(bodies));
  EXPECT_EQ(used(0), 0u);
  EXPECT_EQ(used(1), 0u);
}

// Slots die and are reclaimed by several threads at once while new owners move in.
TEST_F(ThreadsTest, ReclaimersAndNewOwnersOfTheSameSlots) {
  const Usage &usage = region_.usage();
  constexpr unsigned kContested = 3;
  std::atomic<int> lives{3000};
  std::atomic<std::uint64_t> last_words[kContested + 1] = {};  // owner words of ranks that died
  const auto live_and_die = [&](unsigned seed) {
    std::mt19937 random(seed);
    while (lives.fetch_sub(1) > 0) {
      const unsigned slot = 1 + random() % kContested;
      std::uint64_t word = usage.owner(slot).load(std::memory_order_acquire);
      if (OwnerWord::unpack(word).state != OwnerWord::kFree) continue;
      const std::uint64_t mine = OwnerWord{OwnerWord::kActive, 0, 0, OwnerWord::Gen::get(word), seed, 1}.pack();
      if (!usage.owner(slot).compare_exchange_strong(word, mine, std::memory_order_acq_rel)) continue;
      const Word &limit = region_.device(0).memory_bytes;
      for (int i = 0; i < 3; ++i) change_lane(usage, 0, {lane_number(slot, 2), true, random() % 9, &limit});
      change_lane(usage, 0, {lane_number(slot, 2), false, random() % 9});
      last_words[slot].store(mine, std::memory_order_release);  // dead from here on
    }
  };
  const auto reclaim_the_dead = [&] {
    while (lives.load() > 0) {
      for (unsigned slot = 1; slot <= kContested; ++slot) {
        const std::uint64_t dead = last_words[slot].load(std::memory_order_acquire);
        if (dead != 0) reclaim(usage, slot, dead);
      }
    }
  };
  run_together({[&] { live_and_die(1); }, [&] { live_and_die(2); }, reclaim_the_dead, reclaim_the_dead});
  for (unsigned slot = 1; slot <= kContested; ++slot) reclaim(usage, slot, usage.owner(slot).load());
  EXPECT_EQ(used(0), 0u);
}

TEST_F(ThreadsTest, AnAdministratorAmongRanks) {
  // `limits` is mapped read-only by ranks; here a word of our own stands for it.
  Word limit{kLimit};
  std::atomic<bool> stop{false};
  const Usage &usage = region_.usage();
  const auto rank = [&](unsigned slot) {
    return [&, slot] {
      while (!stop) {
        if (change_lane(usage, 0, {lane_number(slot, 2), true, 1000, &limit}).commit == Commit::done) {
          change_lane(usage, 0, {lane_number(slot, 2), false, 1000});
        }
      }
    };
  };
  run_together({rank(1), rank(2), [&] {
                  for (int i = 0; i < 300; ++i) {
                    limit.store(i % 2 == 0 ? 500 * kUnitBytes : kLimit, std::memory_order_release);
                    retire_old_limit(usage, 0);
                    if (i % 2 != 0) continue;
                    std::uint64_t most = used(0);
                    for (int look = 0; look < 50; ++look) {
                      EXPECT_LE(used(0), std::max(most, std::uint64_t{500} * kUnitBytes));
                      most = used(0);
                    }
                  }
                  stop = true;
                }});
  EXPECT_EQ(used(0), 0u);
}

TEST(SeqlockThreads, ReadersSeeWholeBlocks) {
  SlotInfo block{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t n = 0; !stop; ++n) write_info(block, {n, n, n, n, n, n});
  });
  int whole = 0;
  for (int i = 0; i < 20000; ++i) {
    InfoValues values;
    if (!try_read_info([&](InfoCopy *copy) { return copy_info(block, copy); }, &values)) continue;
    ++whole;
    EXPECT_EQ(values.start_time, values.peak_units);
    EXPECT_EQ(values.host_pid, values.refused);
  }
  stop = true;
  writer.join();
  EXPECT_GT(whole, 0);
}

}  // namespace
}  // namespace vgpu::test
