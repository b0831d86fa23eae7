// The table of allocations against std::unordered_map, and its corners: full rows, moved entries, contexts, threads.
#include "runtime/allocations.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "region/support.h"

namespace vgpu::runtime {

using namespace region;
namespace {

bool operator==(const Allocation &a, const Allocation &b) {
  return a.units == b.units && a.dev == b.dev && a.context == b.context;
}

// The table is the process's only one: every test takes out all that it put in.
class AllocationsTest : public testing::Test {
 protected:
  void TearDown() override {
    for (unsigned dev = 0; dev < kMaxDevices; ++dev) EXPECT_EQ(recorded(dev).units, 0u) << "device " << dev;
  }
  void put(std::uint64_t key, const Allocation &allocation) {
    Allocation displaced;
    ASSERT_TRUE(add_allocation(key, allocation, &displaced));
    ASSERT_EQ(displaced.units, 0u);
  }
};

class Oracle {
 public:
  explicit Oracle(std::uint64_t seed) : random_(seed) {}

  // Keys as drivers give them: multiples of 512 close together, and now and then something else.
  std::uint64_t some_key() {
    const std::uint64_t number = random_() % 4096;
    switch (random_() % 4) {
      case 0:
        return allocation_key(Handle::array, 0x7f0000000000 + number * 16);
      case 1:
        return allocation_key(Handle::mipmap, 0x7f0000000000 + number * 16);
      case 2:
        return allocation_key(Handle::pointer, 0x10000000 + number * 512);
      default:
        return allocation_key(Handle::pointer, 0x7e0000000000 + number * (2 << 20));
    }
  }
  Allocation some_allocation() {
    return {1 + random_() % ((std::uint64_t{1} << 33) - 1), static_cast<unsigned>(random_() % kMaxDevices),
            static_cast<unsigned>(random_() % 8)};
  }

  void step() {
    const std::uint64_t what = random_() % 100;
    // More goes in than out, and then the other way round: the table grows, and is emptied by every route.
    const bool filling = ++steps_ % 40'000 < 20'000;
    if (what == 0 && random_() % 200 == 0) {
      drop_context(static_cast<unsigned>(random_() % 8));
    } else if (what < (filling ? 70u : 30u)) {
      add(some_key(), some_allocation());
    } else {
      take(some_key());
    }
  }
  void add(std::uint64_t key, const Allocation &allocation) {
    Allocation displaced;
    ASSERT_TRUE(add_allocation(key, allocation, &displaced));
    const auto [at, fresh] = map_.try_emplace(key, allocation);
    ASSERT_EQ(displaced.units, fresh ? 0 : at->second.units);
    if (!fresh) {
      ASSERT_TRUE(displaced == at->second);
      at->second = allocation;
    }
  }
  void take(std::uint64_t key) {
    Allocation taken;
    const bool found = take_allocation(key, &taken);
    const auto at = map_.find(key);
    ASSERT_EQ(found, at != map_.end());
    if (!found) return;
    ASSERT_TRUE(taken == at->second);
    map_.erase(at);
  }
  void drop_context(unsigned context) {
    std::uint64_t expected[kMaxDevices] = {};
    Given given;
    take_allocations_of(context, &given);
    std::erase_if(map_, [&](const auto &entry) {
      if (entry.second.context != context) return false;
      expected[entry.second.dev] += entry.second.units;
      return true;
    });
    for (unsigned dev = 0; dev < kMaxDevices; ++dev) ASSERT_EQ(given.data_units[dev], expected[dev]);
  }
  void expect_same_totals() const {
    std::uint64_t expected[kMaxDevices] = {};
    for (const auto &[key, allocation] : map_) expected[allocation.dev] += allocation.units;
    for (unsigned dev = 0; dev < kMaxDevices; ++dev) ASSERT_EQ(recorded(dev).units, expected[dev]);
  }
  void empty() {
    while (!map_.empty()) take(map_.begin()->first);
  }
  std::size_t size() const { return map_.size(); }

 private:
  std::mt19937_64 random_;
  std::unordered_map<std::uint64_t, Allocation> map_;
  unsigned steps_ = 0;
};

TEST_F(AllocationsTest, DoesWhatAMapDoes) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Oracle oracle(seed);
    std::size_t most = 0;
    for (int i = 0; i < 200'000; ++i) {
      oracle.step();
      most = std::max(most, oracle.size());
      if (i % 10'000 == 0) oracle.expect_same_totals();
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
    EXPECT_GT(most, 1000u);
    oracle.empty();
  }
}

TEST_F(AllocationsTest, EveryFieldKeepsItsLargestValue) {
  const Allocation largest = {(std::uint64_t{1} << 33) - 1, kMaxDevices - 1, 1023};
  put(allocation_key(Handle::pointer, 512), largest);
  Allocation taken;
  ASSERT_TRUE(take_allocation(allocation_key(Handle::pointer, 512), &taken));
  EXPECT_TRUE(taken == largest);
}

TEST_F(AllocationsTest, PointersAndHandlesAreDifferentThings) {
  constexpr std::uint64_t kValue = 0x7f1234567800;
  const Handle kinds[] = {Handle::pointer, Handle::array, Handle::mipmap};
  for (unsigned i = 0; i < 3; ++i) put(allocation_key(kinds[i], kValue), {i + 1, i, i});
  for (unsigned i = 0; i < 3; ++i) {
    Allocation taken;
    ASSERT_TRUE(take_allocation(allocation_key(kinds[i], kValue), &taken));
    EXPECT_EQ(taken.units, i + 1);
    EXPECT_FALSE(take_allocation(allocation_key(kinds[i], kValue), &taken));
  }
}

// Keys that all want the same place: rows run over the end of the table and around to its beginning, and every removal
// moves entries back. The hash is repeated here to find such keys.
TEST_F(AllocationsTest, RowsThatRunAroundTheEnd) {
  const auto hash = [](std::uint64_t key) {
    key *= 0x9e3779b97f4a7c15;
    return key ^ key >> 32;
  };
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 512; keys.size() < 100; key += 512) {
    const std::uint64_t hashed = hash(key);
    if (hashed >> 58 == 5 && (hashed & 255) >= 253) keys.push_back(key);
  }
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::shuffle(keys.begin(), keys.end(), random);
    const std::size_t count = 1 + random() % keys.size();
    for (std::size_t i = 0; i < count; ++i) put(keys[i], {i + 1, 0, static_cast<unsigned>(i % 3)});
    const auto dropped = static_cast<unsigned>(random() % 4);  // sometimes one that has nothing
    Given given;
    take_allocations_of(dropped, &given);
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < count; ++i) expected += i % 3 == dropped ? i + 1 : 0;
    EXPECT_EQ(given.data_units[0], expected);
    for (std::size_t i = 0; i < count; ++i) {
      Allocation taken;
      ASSERT_EQ(take_allocation(keys[i], &taken), i % 3 != dropped);
      if (i % 3 != dropped) {
        ASSERT_EQ(taken.units, i + 1);
      }
    }
  }
}

// ---- pieces of blocks ------------------------------------------------------------------------------------------------

constexpr std::uint64_t kBlock = 2 << 20;
constexpr std::uint64_t kBlockUnits = units_for(kBlock);
constexpr std::uint64_t kBase = 0x7f0000000000;

bool paid(unsigned, std::uint64_t) { return true; }
bool unpaid(unsigned, std::uint64_t) { return false; }

class PiecesTest : public AllocationsTest {
 protected:
  static Allocation whole(unsigned context = 1, bool elastic = false) {
    return {kBlockUnits, 0, context, elastic, true};
  }
  static Piece add(std::uint64_t pointer, const Allocation &block = whole(),
                   bool (*pay)(unsigned, std::uint64_t) = paid) {
    Allocation displaced;
    const Piece piece = add_piece(pointer, kBlock, block, pay, &displaced);
    EXPECT_EQ(displaced.units, 0u);
    return piece;
  }
  static Taken take(std::uint64_t pointer) { return take_pointer(pointer, &taken_); }

  inline static Allocation taken_;
};

TEST_F(PiecesTest, ABlockIsOneEntry) {
  EXPECT_EQ(add(kBase + 4096), Piece::new_block);
  EXPECT_EQ(add(kBase), Piece::shared_block);
  EXPECT_EQ(add(kBase + kBlock), Piece::new_block);
  EXPECT_EQ(recorded(0).units, 2 * kBlockUnits);
  EXPECT_EQ(take(kBase), Taken::piece);
  EXPECT_EQ(take(kBase + kBlock), Taken::last_piece);
  EXPECT_EQ(recorded(0).units, kBlockUnits);
  EXPECT_EQ(take(kBase + 4096), Taken::last_piece);
  EXPECT_EQ(taken_.units, kBlockUnits);
  EXPECT_TRUE(taken_.small);
  EXPECT_EQ(take(kBase + 4096), Taken::not_ours);
}

TEST_F(PiecesTest, LargeOnesAreFoundByTheirBeginningAlone) {
  Allocation displaced;
  ASSERT_TRUE(add_large(kBase, kBlock, {3 * kBlockUnits, 0, 1}, &displaced));
  EXPECT_EQ(take(kBase + 512), Taken::not_ours);
  EXPECT_EQ(take(kBase + kBlock), Taken::not_ours);
  EXPECT_EQ(take(kBase), Taken::large);
  EXPECT_EQ(taken_.units, 3 * kBlockUnits);
}

TEST_F(PiecesTest, ALargeOneInTheMiddleOfABlockOfPieces) {
  Allocation displaced;
  EXPECT_EQ(add(kBase), Piece::new_block);
  ASSERT_TRUE(add_large(kBase + 4096, kBlock, {kBlockUnits, 0, 1}, &displaced));
  EXPECT_EQ(take(kBase + 4096), Taken::large);
  EXPECT_EQ(take(kBase), Taken::last_piece);
}

TEST_F(PiecesTest, WhoeverJoinsAnUnpaidBlockMustPayToo) {
  EXPECT_EQ(add(kBase, whole(), unpaid), Piece::unpaid_block);
  EXPECT_EQ(add(kBase + 512, whole(), unpaid), Piece::unpaid_block);
  EXPECT_TRUE(pay_block(kBase + 512, kBlock));
  EXPECT_FALSE(pay_block(kBase, kBlock)) << "paid twice";
  EXPECT_EQ(add(kBase + 1024, whole(), unpaid), Piece::shared_block);
  for (const unsigned offset : {0, 512, 1024}) take(kBase + offset);
  EXPECT_FALSE(taken_.unpaid);
}

TEST_F(PiecesTest, AnUnpaidBlockGoesWithAllWhoUndidTheirCalls) {
  EXPECT_EQ(add(kBase, whole(), unpaid), Piece::unpaid_block);
  EXPECT_EQ(add(kBase + 512, whole(), unpaid), Piece::unpaid_block);
  EXPECT_EQ(take(kBase), Taken::piece);
  EXPECT_TRUE(taken_.unpaid);
  EXPECT_EQ(take(kBase + 512), Taken::last_piece);
  EXPECT_TRUE(taken_.unpaid);
  EXPECT_FALSE(pay_block(kBase, kBlock));
}

TEST_F(PiecesTest, GoDownWithTheirContext) {
  add(kBase, whole(1));
  add(kBase + 512, whole(1));
  add(kBase + kBlock, whole(2));
  add(kBase + 2 * kBlock, whole(1), unpaid);
  Given given;
  take_allocations_of(1, &given);
  EXPECT_EQ(given.small_units[0], kBlockUnits) << "what was never charged is not given back";
  EXPECT_EQ(given.data_units[0], 0u);
  EXPECT_EQ(take(kBase), Taken::not_ours);
  EXPECT_EQ(take(kBase + kBlock), Taken::last_piece);
}

TEST_F(PiecesTest, AnotherContextsBlockReplacesIt) {
  add(kBase, whole(1));
  add(kBase + 512, whole(1));
  Allocation displaced;
  EXPECT_EQ(add_piece(kBase, kBlock, whole(2), paid, &displaced), Piece::new_block);
  EXPECT_EQ(displaced.units, kBlockUnits);
  EXPECT_EQ(recorded(0).units, kBlockUnits);
  EXPECT_EQ(take(kBase), Taken::last_piece);
}

TEST_F(PiecesTest, OneThatIsSurelyThereMakesItsBlockSo) {
  add(kBase, whole(1, true));
  EXPECT_EQ(recorded(0).elastic_units, kBlockUnits);
  add(kBase + 512, whole(1, true));
  EXPECT_EQ(recorded(0).elastic_units, kBlockUnits);
  add(kBase + 1024, whole(1, false));
  EXPECT_EQ(recorded(0).elastic_units, 0u);
  EXPECT_EQ(recorded(0).units, kBlockUnits);
  for (const unsigned offset : {0, 512, 1024}) take(kBase + offset);
}

TEST_F(PiecesTest, WhatIsSharedMayBeElsewhere) {
  Allocation displaced, marked;
  add(kBase + 512);
  ASSERT_TRUE(add_large(kBase + kBlock, kBlock, {2 * kBlockUnits, 0, 1}, &displaced));
  EXPECT_TRUE(share_pointer(kBase + 512, &marked));
  EXPECT_TRUE(share_pointer(kBase + kBlock, &marked));
  EXPECT_EQ(marked.units, 2 * kBlockUnits);
  EXPECT_FALSE(share_pointer(kBase + kBlock + 512, &marked));
  EXPECT_EQ(recorded(0).elastic_units, 3 * kBlockUnits);
  EXPECT_EQ(take(kBase + 512), Taken::last_piece);
  EXPECT_TRUE(taken_.shared);
  EXPECT_EQ(take(kBase + kBlock), Taken::large);
  EXPECT_TRUE(taken_.shared);
  EXPECT_EQ(recorded(0).elastic_units, 0u);
}

// Devices whose blocks differ: a pointer alone does not say whose it is.
TEST_F(PiecesTest, BlocksOfTwoSizes) {
  constexpr std::uint64_t kWide = 4 * kBlock;
  const Allocation wide = {units_for(kWide), 1, 1, false, true};
  Allocation displaced;
  add(kBase);
  EXPECT_EQ(add_piece(kBase + kWide + 3 * kBlock, kWide, wide, paid, &displaced), Piece::new_block);
  EXPECT_EQ(add_piece(kBase + kWide, kWide, wide, paid, &displaced), Piece::shared_block);
  EXPECT_EQ(take(kBase), Taken::last_piece);
  EXPECT_EQ(taken_.dev, 0u);
  EXPECT_EQ(take(kBase + kWide + 3 * kBlock), Taken::piece);
  EXPECT_EQ(take(kBase + kWide), Taken::last_piece);
  EXPECT_EQ(taken_.units, units_for(kWide));
}

TEST_F(PiecesTest, ManyThreadsInOneBlock) {
  std::atomic<unsigned> opened = 0, emptied = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20'000; ++i) {
        Allocation block;
        opened += add_piece(kBase + t * 512, kBlock, whole(), paid, &block) == Piece::new_block;
        emptied += take_pointer(kBase + t * 512, &block) == Taken::last_piece;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(opened, emptied);
  EXPECT_GT(opened, 0u);
}

TEST_F(AllocationsTest, AMillion) {
  constexpr std::uint64_t kCount = 1'000'000;
  for (std::uint64_t i = 1; i <= kCount; ++i) put(i * 512, {i, static_cast<unsigned>(i % 2), 1});
  EXPECT_EQ(recorded(0).units + recorded(1).units, kCount * (kCount + 1) / 2);
  for (std::uint64_t i = kCount; i >= 1; --i) {
    Allocation taken;
    ASSERT_TRUE(take_allocation(i * 512, &taken));
    ASSERT_EQ(taken.units, i);
  }
}

TEST_F(AllocationsTest, ManyThreads) {
  constexpr unsigned kThreads = 8;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      std::mt19937_64 random(t);
      std::set<std::uint64_t> mine;
      for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t key = ((random() % 500) * kThreads + t + 1) * 512;  // nobody else's
        Allocation allocation;
        if (mine.erase(key) != 0) {
          EXPECT_TRUE(take_allocation(key, &allocation));
          EXPECT_EQ(allocation.units, key);
        } else {
          EXPECT_TRUE(add_allocation(key, {key, t, t}, &allocation));
          EXPECT_EQ(allocation.units, 0u);
          mine.insert(key);
        }
      }
      std::uint64_t expected = 0;
      for (const std::uint64_t key : mine) expected += key;
      Given given;
      take_allocations_of(t, &given);
      EXPECT_EQ(given.data_units[t], expected);
    });
  }
  for (std::thread &thread : threads) thread.join();
}

TEST_F(AllocationsTest, AChildStartsWithNone) {
  SKIP_IF_EMULATED("the emulator ignores MADV_WIPEONFORK");
  put(4096, {3, 0, 1});
  const pid_t child = fork();
  if (child == 0) {
    Allocation allocation;
    const bool clean = recorded(0).units == 0 && !take_allocation(4096, &allocation) &&
                       add_allocation(4096, {1, 0, 1}, &allocation) && allocation.units == 0 && recorded(0).units == 1;
    _exit(clean ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  Allocation allocation;
  EXPECT_TRUE(take_allocation(4096, &allocation));
  EXPECT_EQ(allocation.units, 3u);
}

}  // namespace
}  // namespace vgpu::runtime
