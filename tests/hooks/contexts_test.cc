// Contexts: what they take is measured and charged, and goes when they go, whichever call makes or ends them.
#include "cases.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

// A way to make a context and a way to end it.
struct Way {
  const char *make;
  const char *end;
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const Maker &maker : makers_of(Family::context)) {
    for (const Releaser &releaser : releasers()) {
      if (releaser.family == Family::context && is_primary(releaser.symbol) == is_primary(maker.symbol)) {
        all.push_back({maker.symbol, releaser.symbol});
      }
    }
  }
  return all;
}

class ContextTest : public HooksTest, public testing::WithParamInterface<Way> {
 protected:
  const std::string make_ = GetParam().make;
  const std::string end_ = GetParam().end;

  // Made, and current.
  std::uint64_t make(Program &program, unsigned device = 0) {
    const std::uint64_t context = program.make(make_, device);
    program.must("current " + std::to_string(context));
    return context;
  }
  void end(Program &program, std::uint64_t context, unsigned device = 0) {
    program.drop(end_, is_primary(end_) ? device : context);
  }
  void expect_refused(Program &program, unsigned device = 0) {
    const Answer answer = program.ask("make " + make_ + " " + std::to_string(device));
    EXPECT_EQ(answer.result, kOutOfMemory);
    EXPECT_EQ(answer.number(), kUntouched) << "the output was touched";
  }
};

TEST_P(ContextTest, ChargedAndGivenBack) {
  limit_to(512 * kMiB);
  const auto program = start();
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t context = make(*program);
    expect_held(kContext);
    EXPECT_EQ(charged(0, Kind::context), kContext);
    end(*program, context);
    expect_held(0);
  }
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_P(ContextTest, TakesWhatIsInItDown) {
  limit_to(512 * kMiB);
  const auto program = start();
  const std::uint64_t context = make(*program);
  std::uint64_t bytes = kContext;
  for (const Maker &maker : makers_of(Family::allocation)) {
    const std::uint64_t handle = program->make(maker.symbol, 4 * kMiB);
    if (std::string(maker.symbol) == "cuMemAllocManaged") program->must("touch " + std::to_string(handle) + " 4194304");
    bytes += 4 * kMiB;
  }
  program->make("cuModuleLoadData", 4 * kMiB);
  bytes += kModule + 4 * kMiB;
  expect_held(bytes);
  end(*program, context);
  expect_held(0);
}

// Nobody knows yet what a context takes: it is made, measured, and unmade.
TEST_P(ContextTest, RefusedWhenItTurnsOutTooLarge) {
  limit_to(kContext / 2);
  const auto program = start();
  expect_refused(*program);
  expect_held(0);
  expect_refused(*program);
  expect_held(0);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{refusal_line({0, "0KiB", "64MiB", "32MiB", ""})});
  change_limit(0, kContext);
  const std::uint64_t context = make(*program);
  expect_held(kContext);
  end(*program, context);
  expect_held(0);
}

// Another rank's was measured: the driver is not even asked.
TEST_P(ContextTest, RefusedWhenItIsKnownToBeTooLarge) {
  limit_to(kContext + kContext / 2);
  const auto first = start_on(0);
  const auto second = start();
  node().set_broken(0, true);  // it would say something else
  expect_refused(*second);
  node().set_broken(0, false);
  expect_held(kContext);
  const std::string holder = "; held by pid " + std::to_string(first->pid()) + " 64MiB";
  EXPECT_EQ(second->complaints(), std::vector<std::string>{refusal_line({0, "64MiB", "64MiB", "96MiB", holder})});
}

TEST_P(ContextTest, WhatTheDriverRefusesIsGivenBack) {
  limit_to(512 * kMiB);
  const auto program = start();
  end(*program, make(*program));  // now its size is known, and reserved from here on
  EXPECT_EQ(program->ask("spoil " + make_ + " 0").result, CUDA_ERROR_INVALID_VALUE);
  expect_held(0);
  EXPECT_EQ(program->ask("make " + make_ + " 77").result, CUDA_ERROR_INVALID_DEVICE);
  node().set_broken(0, true);
  EXPECT_EQ(program->ask("make " + make_ + " 0").result, CUDA_ERROR_DEVICE_UNAVAILABLE);
  node().set_broken(0, false);
  expect_held(0);

  Program other(node(), "");
  other.must("init");
  other.make("cuCtxCreate_v2", 0);
  other.make("cuMemAlloc_v2", kDevice - kContext - 32 * kMiB);
  EXPECT_EQ(program->ask("make " + make_ + " 0").result, kOutOfMemory);
  EXPECT_EQ(charged(), 0u);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_P(ContextTest, AKilledRanksContextGoesToTheNext) {
  limit_to(kContext + kContext / 2);
  const auto survivor = start();
  const auto victim = start();
  make(*victim);
  expect_refused(*survivor);
  victim->end(SIGKILL);
  make(*survivor);
  EXPECT_EQ(charged(), kContext);
}

TEST_P(ContextTest, SeenLaterWhereNvmlIsLate) {
  SKIP_IN_PID_NAMESPACE("the library waits until NVML shows it");
  limit_to(kLateGuess + 64 * kMiB);
  const auto program = start();
  const std::uint64_t context = make(*program, kLate);
  EXPECT_EQ(node().held(kLate), kContext);
  EXPECT_EQ(charged(kLate), kLateGuess) << "nobody can know yet";
  const std::uint64_t pointer = program->make("cuMemAlloc_v2", 4 * kMiB);
  sleep_ms(kLateMs + 50);
  // Not by a call about contexts: by any allocation, or question.
  for (int tries = 0; tries < 100 && charged(kLate) != kContext + 4 * kMiB; ++tries) {
    program->must("info");
    sleep_ms(20);
  }
  expect_held(kContext + 4 * kMiB, kLate);
  program->drop("cuMemFree_v2", pointer);
  end(*program, context, kLate);
  expect_held(0, kLate);
}

std::string name_of(const testing::TestParamInfo<Way> &info) {
  return std::string(info.param.make) + "_" + info.param.end;
}
INSTANTIATE_TEST_SUITE_P(Every, ContextTest, testing::ValuesIn(ways()), name_of);

// ---- primary contexts, attachments, stubs ---------------------------------------------------------------------------

class PrimaryTest : public HooksTest, public testing::WithParamInterface<const char *> {};

TEST_P(PrimaryTest, TheLastReleaseCounts) {
  limit_to(512 * kMiB);
  const auto program = start();
  const std::uint64_t context = program->make("cuDevicePrimaryCtxRetain", 0);
  EXPECT_EQ(program->make("cuDevicePrimaryCtxRetain", 0), context);
  EXPECT_EQ(program->make("cuDevicePrimaryCtxRetain", 0), context);
  expect_held(kContext);
  program->must("current " + std::to_string(context));
  program->make("cuMemAlloc_v2", 4 * kMiB);
  program->drop(GetParam(), 0);
  program->drop(GetParam(), 0);
  expect_held(kContext + 4 * kMiB);
  program->drop(GetParam(), 0);
  expect_held(0);
  EXPECT_EQ(program->ask(std::string("drop ") + GetParam() + " 0").result, CUDA_ERROR_INVALID_CONTEXT);
  expect_held(0);
  program->make("cuDevicePrimaryCtxRetain", 0);
  expect_held(kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, PrimaryTest,
                         testing::Values("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2"));

class ResetTest : public HooksTest, public testing::WithParamInterface<const char *> {};

TEST_P(ResetTest, DropsAllThatIsInIt) {
  limit_to(512 * kMiB);
  const auto program = start();
  const std::string reset = std::string("drop ") + GetParam() + " 0";
  EXPECT_EQ(program->ask(reset).result, CUDA_SUCCESS) << "nothing to reset";
  const std::uint64_t context = program->make("cuDevicePrimaryCtxRetain", 0);
  program->make("cuDevicePrimaryCtxRetain", 0);
  program->must("current " + std::to_string(context));
  const std::uint64_t pointer = program->make("cuMemAlloc_v2", 4 * kMiB);
  program->make("cuModuleLoadData", 2 * kMiB);
  expect_held(kContext + 4 * kMiB + kModule + 2 * kMiB);
  program->must(reset);
  expect_held(0);
  EXPECT_NE(program->ask("drop cuMemFree_v2 " + std::to_string(pointer)).result, CUDA_SUCCESS);
  expect_held(0);
  // Its uses are still counted; the next retain makes it anew.
  const std::uint64_t again = program->make("cuDevicePrimaryCtxRetain", 0);
  program->must("current " + std::to_string(again));
  program->make("cuMemAlloc_v2", 2 * kMiB);
  expect_held(kContext + 2 * kMiB);
  program->must(reset);
  expect_held(0);
}

INSTANTIATE_TEST_SUITE_P(Every, ResetTest, testing::Values("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"));

class ContextsTest : public HooksTest {};

TEST_F(ContextsTest, AttachmentsAreCounted) {
  limit_to(512 * kMiB);
  std::uint64_t context = 0;
  const auto program = start_on(0, &context);
  program->make("cuMemAlloc_v2", 4 * kMiB);
  EXPECT_EQ(program->make("cuCtxAttach", 0), context);
  EXPECT_EQ(program->make("cuCtxAttach", 0), context);
  EXPECT_EQ(program->ask("spoil cuCtxAttach 0").result, CUDA_ERROR_INVALID_VALUE);
  program->drop("cuCtxDetach", context);
  program->drop("cuCtxDetach", context);
  expect_held(kContext + 4 * kMiB);
  program->drop("cuCtxDetach", context);
  expect_held(0);
  EXPECT_NE(program->ask("drop cuCtxDetach " + std::to_string(context)).result, CUDA_SUCCESS);
  expect_held(0);
}

TEST_F(ContextsTest, DestroyedTwice) {
  limit_to(512 * kMiB);
  std::uint64_t context = 0;
  const auto program = start_on(0);
  context = program->make("cuCtxCreate_v2", 0);
  program->drop("cuCtxDestroy_v2", context);
  for (const char *destroy : {"cuCtxDestroy", "cuCtxDestroy_v2"}) {
    EXPECT_NE(program->ask(std::string("drop ") + destroy + " " + std::to_string(context)).result, CUDA_SUCCESS);
    EXPECT_NE(program->ask(std::string("drop ") + destroy + " 0").result, CUDA_SUCCESS);
  }
  expect_held(kContext);
}

TEST_F(ContextsTest, GraphicsContextsThatFailTakeNothing) {
  limit_to(512 * kMiB);
  std::uint64_t context = 0;
  const auto program = start_on(0, &context);
  program->drop("cuCtxDestroy_v2", context);  // now what a context takes is known, and reserved
  unsigned tested = 0;
  for (const Maker &maker : makers()) {
    if (is_simulated(maker)) continue;
    const Answer answer = program->ask(std::string("make ") + maker.symbol + " 0");
    EXPECT_EQ(answer.result, CUDA_ERROR_NOT_SUPPORTED) << maker.symbol;
    EXPECT_EQ(answer.number(), kUntouched) << maker.symbol;
    expect_held(0);
    ++tested;
  }
  EXPECT_EQ(tested, 4u);
  // And they are charged like the others: where a context does not fit, the driver is not asked.
  change_limit(0, kContext / 2);
  for (const Maker &maker : makers()) {
    if (!is_simulated(maker)) {
      EXPECT_EQ(program->ask(std::string("make ") + maker.symbol + " 0").result, kOutOfMemory);
    }
  }
}

TEST_F(ContextsTest, ManyOfThem) {
  limit_to(kNoLimit);
  const auto program = start();
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(program->make("cuCtxCreate_v2", 0));
    program->make("cuMemAlloc_v2", 2 * kMiB);
  }
  expect_held(12 * (kContext + 2 * kMiB));
  for (const std::uint64_t context : all) program->drop("cuCtxDestroy_v2", context);
  expect_held(0);
}

}  // namespace
}  // namespace vgpu::test
