// Whatever NVML does, the device holds no more than the limit, the books say no less than the device, and in the end nothing
// is left. Each mood of the simulated NVML has a run, and so has one that changes its mind with every call.
//
// VGPU_WHIM_SEED repeats the run of that seed.
#include <random>

#include "own_node.h"

namespace vgpu::test {
namespace {

struct Whim {
  const char *name;
  const char *lines;
};

constexpr Whim kWhims[] = {
    {"Kind", "visibility_ms=0"},
    {"Late", "visibility_ms=80"},
    {"VeryLate", "visibility_ms=1500"},
    {"ZeroBytes", "visibility_ms=0; nvml_bytes=0"},
    {"NoFigure", "visibility_ms=0; nvml_bytes=none"},
    {"Slow", "visibility_ms=0; nvml_time=5ms..20ms"},
    {"OldListMissing", "visibility_ms=0; nvml_unsupported=nvmlDeviceGetComputeRunningProcesses"},
    {"AllListsMissing", "visibility_ms=0; nvml_unsupported=nvmlDeviceGet*"},
    {"NamespacePids", "visibility_ms=0; nvml_pids=namespace"},
    {"MixedPids", "visibility_ms=0; nvml_pids=mixed"},
    {"LargeBlocks", "visibility_ms=0; block=8MiB"},
};

class WhimsTest : public OwnNodeTest, public testing::WithParamInterface<Whim> {
 protected:
  static constexpr unsigned kRanks = 3;
  static constexpr unsigned kSteps = 120;

  struct Rank {
    Program *program;
    std::uint64_t context = 0;
    std::vector<std::uint64_t> pointers, modules;
  };

  void step(Rank &rank) {
    const unsigned what = pick(100);
    if (rank.context == 0) {
      const Answer made = rank.program->ask("make cuCtxCreate_v2 0");
      if (made.result == CUDA_SUCCESS) rank.context = made.number();
    } else if (what < 45) {
      keep(rank.program->ask("make cuMemAlloc_v2 " + text((1 + pick(300)) * kMiB / 2)), &rank.pointers);
    } else if (what < 60) {
      drop(*rank.program, "cuMemFree_v2", &rank.pointers);
    } else if (what < 70) {
      drop_in_order(rank);
    } else if (what < 80) {
      keep(rank.program->ask("make cuModuleLoadData 0"), &rank.modules);
    } else if (what < 85) {
      drop(*rank.program, "cuModuleUnload", &rank.modules);
    } else if (what < 95) {
      rank.program->must("info");
    } else {
      end(rank);
    }
  }
  static void keep(const Answer &made, std::vector<std::uint64_t> *handles) {
    if (made.result == CUDA_SUCCESS) {
      handles->push_back(made.number());
    } else {
      EXPECT_EQ(made.result, kOutOfMemory);
    }
  }
  static void drop(Program &program, const char *call, std::vector<std::uint64_t> *handles) {
    if (handles->empty()) return;
    program.drop(call, handles->back());
    handles->pop_back();
  }
  static void drop_in_order(Rank &rank) {
    if (rank.pointers.empty()) return;
    rank.program->must("call cuMemFreeAsync " + text(rank.pointers.back()) + " 0");
    rank.pointers.pop_back();
    rank.program->must("call cuCtxSynchronize");
  }
  static void end(Rank &rank) {
    if (rank.context != 0) rank.program->drop("cuCtxDestroy_v2", rank.context);
    rank.context = 0;
    rank.pointers.clear();
    rank.modules.clear();
  }
  unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }

  void run(const std::string &lines, unsigned seed) {
    random_.seed(seed);
    make(lines, 2048 * kMiB);
    std::vector<Rank> ranks;
    for (unsigned i = 0; i < kRanks; ++i) ranks.push_back({&start(), 0, {}, {}});
    unsigned worked = 0;
    for (unsigned i = 0; i < kSteps && !HasFailure(); ++i) {
      Rank &rank = ranks[pick(kRanks)];
      step(rank);
      worked += rank.context != 0;
      ASSERT_LE(held(), limit_) << "step " << i;
      ASSERT_GE(charged(), held()) << "step " << i;
    }
    EXPECT_GT(worked, kSteps / 4) << "hardly anything was granted";
    for (Rank &rank : ranks) end(rank);
    EXPECT_EQ(held(), 0u);
    // Idle blocks and guesses are gone with the last call of each, or soon.
    for (int waited = 0; charged() != 0 && waited < 100; ++waited) {
      sleep_ms(20);
      for (Rank &rank : ranks) rank.program->ask("call cuCtxSynchronize");
    }
    EXPECT_EQ(charged(), 0u);
  }

 private:
  std::mt19937 random_;
};

TEST_P(WhimsTest, TheDeviceHoldsNoMoreThanTheLimitAndTheBooksNoLess) { run(GetParam().lines, 16); }

INSTANTIATE_TEST_SUITE_P(Every, WhimsTest, testing::ValuesIn(kWhims),
                         [](const auto &info) { return std::string(info.param.name); });

// Nobody can say when it is gone but the stream.
TEST_F(OwnNodeTest, WhatIsFreedInOrderIsGivenBackWhereNvmlCannotTell) {
  make("nvml_unsupported=nvmlDeviceGet*", 2048 * kMiB);
  Program &rank = start();
  rank.make("cuCtxCreate_v2", 0);
  const std::uint64_t pointer = rank.make("cuMemAlloc_v2", 64 * kMiB);
  EXPECT_EQ(charged(), kGuess + 64 * kMiB);
  rank.must("call cuMemFreeAsync " + text(pointer) + " 0");
  rank.must("call cuCtxSynchronize");
  EXPECT_EQ(charged(), kGuess);
  EXPECT_EQ(held(), kContext);
}

class MoodyTest : public WhimsTest {};

TEST_P(MoodyTest, AtRandom) {
  const char *given = std::getenv("VGPU_WHIM_SEED");
  const unsigned seed =
      given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device{}() % 1000000 + 1;
  std::printf("VGPU_WHIM_SEED=%u\n", seed);
  run(std::string(GetParam().lines) + "; nvml_seed=" + text(seed), seed);
}

INSTANTIATE_TEST_SUITE_P(Some, MoodyTest, testing::Values(Whim{"Late", "visibility_ms=80; nvml_time=1ms..5ms"}),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace vgpu::test
