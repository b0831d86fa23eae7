// Memory that grows unseen: code that is loaded by its first launch, stacks, modules under an NVML that takes its time.
#include "own_node.h"

namespace vgpu::test {
namespace {

class GrowthTest : public OwnNodeTest {
 protected:
  static constexpr std::uint64_t kStack = 8192;
  // 80 SMs with 2048 threads, of whose stack 1 KiB is there from the start.
  static constexpr std::uint64_t kStacks = 80 * 2048 * (kStack - 1024);

  Program &start_measured() {
    Program &rank = start();
    rank.make("cuCtxCreate_v2", 0);
    EXPECT_EQ(charged(), held());
    return rank;
  }
  // A rank that waits for its kernels is looked at within a second.
  void synchronise_until_charged(Program &rank) {
    const double start_ms = now_ms();
    while (charged() < held() && now_ms() - start_ms < 1500) {
      rank.must("call cuCtxSynchronize");
      sleep_ms(20);
    }
    EXPECT_EQ(charged(), held());
    EXPECT_LT(now_ms() - start_ms, 1200);
  }
};

TEST_F(GrowthTest, TheFirstLaunchLoadsCode) {
  make("visibility_ms=0; function=64MiB", 4096 * kMiB);
  Program &rank = start_measured();
  rank.must("call cuLaunchKernel 1us 1");
  EXPECT_GE(held(), kContext + 64 * kMiB);
  synchronise_until_charged(rank);
}

TEST_F(GrowthTest, StacksOfAllResidentThreads) {
  make("visibility_ms=0; local_memory=grows", 4096 * kMiB);
  Program &rank = start_measured();
  rank.must("call cuCtxSetLimit " + std::to_string(CU_LIMIT_STACK_SIZE) + " " + text(kStack));
  rank.must("call cuLaunchKernel 1us 1");
  EXPECT_GE(held(), kContext + kStacks);
  synchronise_until_charged(rank);
}

TEST_F(GrowthTest, WhoAsksWhatIsFreeSeesItAtOnce) {
  make("visibility_ms=0; local_memory=grows", 4096 * kMiB);
  Program &rank = start_measured();
  rank.must("call cuCtxSetLimit " + std::to_string(CU_LIMIT_STACK_SIZE) + " " + text(kStack));
  rank.must("call cuLaunchKernel 1us 1");
  sleep_ms(110);
  EXPECT_EQ(rank.must("info"), limit_ - held());
  EXPECT_EQ(charged(), held());
}

TEST_F(GrowthTest, NothingIsGrantedOnceItIsOver) {
  make("visibility_ms=0; local_memory=grows", 1024 * kMiB);
  Program &rank = start_measured();
  rank.must("call cuCtxSetLimit " + std::to_string(CU_LIMIT_STACK_SIZE) + " " + text(kStack));
  rank.must("call cuLaunchKernel 1us 1");
  EXPECT_GT(held(), limit_) << "nobody can refuse a launch's stack";
  synchronise_until_charged(rank);
  EXPECT_EQ(rank.ask("make cuMemAlloc_v2 " + text(2 * kMiB)).result, kOutOfMemory);
  EXPECT_EQ(rank.must("info"), 0u);
}

// A launch that nobody synchronises with: whoever allocates first sees it, not the eighth who does.
class OverTest : public GrowthTest {
 protected:
  void SetUp() override {
    make("visibility_ms=0; function=1GiB", 2 * kContext + 256 * kMiB, {kContext, ContextSource::measured});
  }
  // What is unsettled is looked at soon in any case.
  static void come_to_rest(Program &rank) {
    for (unsigned i = 0; i < 3; ++i) {
      rank.must("info");
      sleep_ms(25);
      rank.must("call cuCtxSynchronize");
    }
  }
  static int allocate(Program &rank) { return rank.ask("make cuMemAlloc_v2 " + text(2 * kMiB)).result; }
};

TEST_F(OverTest, TheFirstAllocationIsRefused) {
  Program &rank = start_measured();
  come_to_rest(rank);
  rank.must("call cuLaunchKernel 1us 1");
  EXPECT_GT(held(), limit_) << "nobody can refuse a launch's code";
  sleep_ms(1000);
  EXPECT_EQ(allocate(rank), kOutOfMemory);
  EXPECT_EQ(charged(), held());
}

TEST_F(OverTest, NoBlockIsLeftForSmallPieces) {
  Program &rank = start_measured();
  rank.make("cuMemAlloc_v2", 4096);
  come_to_rest(rank);
  rank.must("call cuLaunchKernel 1us 1");
  sleep_ms(1000);
  const std::uint64_t before = held();
  EXPECT_EQ(allocate(rank), kOutOfMemory);
  // Other sizes are in other blocks, of which one was charged ahead.
  EXPECT_EQ(rank.ask("make cuMemAlloc_v2 65536").result, kOutOfMemory);
  EXPECT_EQ(held(), before);
}

TEST_F(OverTest, ALaunchOfAnotherRank) {
  Program &launcher = start_measured();
  Program &rank = start();
  rank.make("cuCtxCreate_v2", 0);
  come_to_rest(launcher);
  come_to_rest(rank);
  launcher.must("call cuLaunchKernel 1us 1");
  EXPECT_GT(held(), limit_);
  sleep_ms(1000);
  EXPECT_EQ(allocate(rank), kOutOfMemory);
}

TEST_F(OverTest, ALaunchOfAnotherRankThatWasNeverSeen) {
  Program &launcher = start_measured();
  Program &rank = start();
  rank.make("cuCtxCreate_v2", 0);
  launcher.must("call cuLaunchKernel 1us 1");
  EXPECT_GT(held(), limit_);
  sleep_ms(1000);
  EXPECT_EQ(allocate(rank), kOutOfMemory);
}

// ---- modules --------------------------------------------------------------------------------------------------------

class SlowNvmlTest : public GrowthTest {
 protected:
  static constexpr unsigned kLoads = 200;

  // Milliseconds.
  static double load_all(Program &program) {
    const double start_ms = now_ms();
    for (unsigned i = 0; i < kLoads; ++i) program.make("cuModuleLoadData", 0);
    return now_ms() - start_ms;
  }
};

TEST_F(SlowNvmlTest, TwoHundredLoadsDoNotWaitForIt) {
  make("visibility_ms=0; nvml_time=10ms", 8192 * kMiB);
  Program bare(node(), "");
  bare.must("init");
  bare.make("cuCtxCreate_v2", 0);
  const double without_us = load_all(bare);
  Program &rank = start();
  rank.make("cuCtxCreate_v2", 0);
  const double with_us = load_all(rank);
  // One look each would take two seconds. Some come with time: a tenth of it at most, and the rest is the machine's.
  EXPECT_LT(with_us - without_us, 600);
  EXPECT_GE(charged(rank.pid()), node().held(0, rank.pid())) << "what was loaded is reserved";
  // A look that took long on a busy machine is followed by a long pause.
  const auto settled = [&] {
    rank.must("info");
    return charged(rank.pid()) == node().held(0, rank.pid());
  };
  for (const double start_ms = now_ms(); !settled() && now_ms() - start_ms < 5000;) sleep_ms(100);
  EXPECT_EQ(charged(rank.pid()), node().held(0, rank.pid()));
}

TEST_F(SlowNvmlTest, NearTheLimitEachIsMeasured) {
  make("visibility_ms=0; nvml_time=10ms", kContext + 20 * kMiB, {kContext, ContextSource::measured});
  Program &rank = start_measured();
  unsigned loaded = 0;
  while (loaded < 50 && rank.ask("make cuModuleLoadData " + text(4 * kMiB)).result == CUDA_SUCCESS) {
    EXPECT_EQ(charged(), held());
    ++loaded;
  }
  EXPECT_GE(loaded, 2u);
  EXPECT_LT(loaded, 10u);
  EXPECT_LE(held(), limit_);
}

}  // namespace
}  // namespace vgpu::test
