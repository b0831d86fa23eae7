// Jobs that start: contexts are made before anybody can know what they take, and the device holds no more than the limit
// all the same.
#include "own_node.h"

namespace vgpu::test {
namespace {

constexpr unsigned kRanks = 8;

class StartsTest : public OwnNodeTest {
 protected:
  // All make a context at the same time. How many have one, when all calls have returned.
  unsigned start_together() {
    std::vector<Program *> ranks;
    for (unsigned i = 0; i < kRanks; ++i) ranks.push_back(&start());
    for (Program *rank : ranks) rank->tell("make cuCtxCreate_v2 0");
    unsigned made = 0;
    for (Program *rank : ranks) {
      const Answer answer = rank->answer();
      if (answer.result == CUDA_SUCCESS) {
        ++made;
        with_context_.push_back(rank);
      } else {
        EXPECT_EQ(answer.result, kOutOfMemory);
      }
    }
    return made;
  }
  // By the driver's own books.
  void expect_within() {
    EXPECT_LE(held(), limit_) << held() / kMiB << " MiB";
    EXPECT_GE(charged(), held()) << "the books say less than the device";
  }
  // Until the books say what the device holds, because a rank does something now and then.
  void settle(Program &rank, std::uint64_t expected) {
    for (int waited = 0; charged() != expected && waited < 150; ++waited) {
      sleep_ms(20);
      rank.must("info");
    }
    EXPECT_EQ(charged(), expected);
  }

  std::vector<Program *> with_context_;
};

TEST_F(StartsTest, EightRanksAtOnceStayWithin) {
  make("visibility_ms=80", 1024 * kMiB);
  const unsigned made = start_together();
  EXPECT_GE(made, 1u);
  EXPECT_LE(made, 3u);
  expect_within();
  settle(*with_context_.front(), made * kContext);
}

TEST_F(StartsTest, WhoComesLaterFindsTheFigure) {
  SKIP_IN_PID_NAMESPACE("the library waits until NVML shows it");
  make("visibility_ms=80", 1024 * kMiB);
  Program &first = start();
  first.make("cuCtxCreate_v2", 0);
  EXPECT_EQ(charged(), kGuess);
  // The guess leaves no room for a second one. It refuses nobody: the first is settled by whoever needs the room.
  Program &second = start(), &third = start(), &fourth = start();
  second.make("cuCtxCreate_v2", 0);
  third.make("cuCtxCreate_v2", 0);
  EXPECT_EQ(held(), 3 * kContext);
  settle(third, 3 * kContext);
  EXPECT_EQ(fourth.ask("make cuCtxCreate_v2 0").result, kOutOfMemory);
  EXPECT_EQ(held(), 3 * kContext);
}

TEST_F(StartsTest, AMeasuredFigureIsReservedAndNobodyWaits) {
  make("visibility_ms=80", 1024 * kMiB, {kContext, ContextSource::measured});
  const double start_ms = now_ms();
  EXPECT_EQ(start_together(), 3u);
  EXPECT_LT(now_ms() - start_ms, 5000);
  EXPECT_EQ(charged(), 3 * kContext);
  expect_within();
}

// Like numba: a context, a module, small arrays, and then nothing but launches for as long as NVML is late.
TEST_F(StartsTest, RanksLikeNumbasAreNotZero) {
  make("visibility_ms=300", 16384 * kMiB);
  for (unsigned i = 0; i < 3; ++i) {
    Program &rank = start();
    rank.make("cuDevicePrimaryCtxRetain", 0);
    EXPECT_GE(charged(rank.pid(), Kind::context), kContext);
  }
}

TEST_F(StartsTest, ZeroBytesAreNotKnown) {
  make("visibility_ms=0; nvml_bytes=0", 1024 * kMiB);
  const unsigned made = start_together();
  EXPECT_GE(made, 1u);
  expect_within();
  EXPECT_GE(charged(with_context_.front()->pid(), Kind::context), kContext);
  // Nor later.
  for (unsigned i = 0; i < 20; ++i) {
    sleep_ms(20);
    with_context_.front()->must("info");
  }
  expect_within();
}

TEST_F(StartsTest, NoFigureIsNotKnown) {
  make("visibility_ms=0; nvml_bytes=none", 1024 * kMiB);
  start_together();
  expect_within();
}

TEST_F(StartsTest, AnIdleRankIsSettledByASibling) {
  SKIP_IN_PID_NAMESPACE("the library waits until NVML shows it");
  make("visibility_ms=80", 2048 * kMiB);
  Program &idle = start();
  idle.make("cuCtxCreate_v2", 0);
  EXPECT_EQ(charged(idle.pid(), Kind::context), kGuess);
  Program &busy = start();
  busy.make("cuCtxCreate_v2", 0);
  for (int waited = 0; charged(idle.pid(), Kind::context) != kContext && waited < 200; ++waited) {
    sleep_ms(20);
    busy.must("call cuCtxSynchronize");
  }
  EXPECT_EQ(charged(idle.pid(), Kind::context), kContext);
  // It goes on as if it had done so itself.
  idle.drop("cuMemFree_v2", idle.make("cuMemAlloc_v2", 2 * kMiB));
  EXPECT_EQ(charged(idle.pid(), Kind::context), kContext);
}

TEST_F(StartsTest, AGuessWaitsBeforeItRefusesAndNotForLong) {
  make("visibility_ms=60000", 512 * kMiB);  // never, as far as this test is concerned
  Program &rank = start();
  const double start_ms = now_ms();
  EXPECT_EQ(rank.ask("make cuCtxCreate_v2 0").result, kOutOfMemory);
  const double waited = now_ms() - start_ms;
  EXPECT_GE(waited, 450) << "it did not wait for NVML";
  EXPECT_LT(waited, 2500);
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(charged(), 0u);
  ASSERT_EQ(rank.complaints().size(), 1u);
  EXPECT_NE(rank.complaints()[0].find("out of memory"), std::string::npos) << rank.complaints()[0];
}

TEST_F(StartsTest, DataThatAGuessWouldRefuseIsThereWhenNvmlShowsIt) {
  SKIP_IN_PID_NAMESPACE("the library waits until NVML shows it");
  make("visibility_ms=300", 1024 * kMiB);
  Program &rank = start();
  rank.make("cuCtxCreate_v2", 0);
  EXPECT_EQ(charged(), kGuess);
  rank.make("cuMemAlloc_v2", 700 * kMiB);
  EXPECT_EQ(held(), kContext + 700 * kMiB);
  EXPECT_EQ(charged(), held());
}

TEST_F(StartsTest, AContextThatGoesTakesWhatItWasCharged) {
  make("visibility_ms=60000", 4096 * kMiB);
  Program &rank = start();
  const std::uint64_t first = rank.make("cuCtxCreate_v2", 0);
  const std::uint64_t second = rank.make("cuCtxCreate_v2", 0);
  EXPECT_EQ(charged(), 2 * kGuess);
  rank.drop("cuCtxDestroy_v2", first);
  EXPECT_EQ(charged(), kGuess);
  rank.drop("cuCtxDestroy_v2", second);
  EXPECT_EQ(charged(), 0u);
}

}  // namespace
}  // namespace vgpu::test
