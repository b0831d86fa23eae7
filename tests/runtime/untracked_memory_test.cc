// Memory that no allocation shows: green contexts, heaps, libraries that are loaded when they are first used.
#include "driver/cuda_api.h"
#include "hooks/support.h"

namespace vgpu::test {

using namespace region;
namespace {

constexpr std::uint64_t kGreen = 4 * kMiB;  // what a green context of the simulated driver takes itself

class HiddenTest : public HooksTest {
 protected:
  void SetUp() override { limit_to(512 * kMiB); }
  static std::uint64_t call(Program &program, const std::string &line) { return program.must("call " + line); }
  static int result_of(Program &program, const std::string &line) { return program.ask("call " + line).result; }
  // What is to be measured with the next allocation is measured then.
  static void allocate_soon(Program &program) {
    sleep_ms(25);
    program.drop("cuMemFree_v2", program.make("cuMemAlloc_v2", 2 * kMiB));
  }
};

// ---- green contexts -------------------------------------------------------------------------------------------------

TEST_F(HiddenTest, AGreenContextBringsThePrimaryContext) {
  const auto program = start();
  const std::uint64_t green = call(*program, "cuGreenCtxCreate 0");
  expect_held(kContext + kGreen);
  EXPECT_EQ(charged(0, Kind::context), kContext + kGreen);
  const std::uint64_t second = call(*program, "cuGreenCtxCreate 0");
  expect_held(kContext + 2 * kGreen);
  call(*program, "cuGreenCtxDestroy " + text(green));
  expect_held(kContext + kGreen);
  call(*program, "cuGreenCtxDestroy " + text(second));
  expect_held(0);
}

TEST_F(HiddenTest, WhatIsAllocatedInAGreenContextIsThePrimaryContexts) {
  const auto program = start();
  const std::uint64_t primary = program->make("cuDevicePrimaryCtxRetain", 0);
  const std::uint64_t green = call(*program, "cuGreenCtxCreate 0");
  program->must("current " + text(call(*program, "cuCtxFromGreenCtx " + text(green))));
  program->make("cuMemAlloc_v2", 6 * kMiB);
  call(*program, "cuMemAllocAsync " + text(4 * kMiB) + " 0");
  expect_held(kContext + kGreen + 6 * kMiB + 32 * kMiB);
  call(*program, "cuGreenCtxDestroy " + text(green));
  expect_held(kContext + 6 * kMiB + 32 * kMiB);  // memory stays with the primary context
  program->must("current " + text(primary));
  program->make("cuMemAlloc_v2", 2 * kMiB);
  expect_held(kContext + 8 * kMiB + 32 * kMiB);
  program->drop("cuDevicePrimaryCtxRelease_v2", 0);
  EXPECT_EQ(charged(), node().held(0));
  EXPECT_EQ(charged(), 32 * kMiB) << "the device's own pool";
}

TEST_F(HiddenTest, AGreenContextKeepsThePrimaryContext) {
  const auto program = start();
  program->make("cuDevicePrimaryCtxRetain", 0);
  const std::uint64_t green = call(*program, "cuGreenCtxCreate 0");
  program->must("current " + text(call(*program, "cuCtxFromGreenCtx " + text(green))));
  program->make("cuMemAlloc_v2", 6 * kMiB);
  program->drop("cuDevicePrimaryCtxRelease_v2", 0);
  expect_held(kContext + kGreen + 6 * kMiB);
  call(*program, "cuGreenCtxDestroy " + text(green));
  expect_held(0);
  // The numbers are free for others.
  program->make("cuCtxCreate_v2", 0);
  const std::uint64_t pointer = program->make("cuMemAlloc_v2", 2 * kMiB);
  expect_held(kContext + 2 * kMiB);
  program->drop("cuMemFree_v2", pointer);
  expect_held(kContext);
}

TEST_F(HiddenTest, AGreenContextIsRefusedAtTheLimit) {
  const auto program = start();
  change_limit(0, kContext + kGreen);
  program->make("cuDevicePrimaryCtxRetain", 0);
  // Beside the primary context it needs little, and that much is there.
  const std::uint64_t green = call(*program, "cuGreenCtxCreate 0");
  expect_held(kContext + kGreen);
  const Answer refused = program->ask("call cuGreenCtxCreate 0");
  EXPECT_EQ(refused.result, kOutOfMemory);
  EXPECT_EQ(refused.number(), 0x5a5a5a5au) << "the output was touched";
  expect_held(kContext + kGreen);
  call(*program, "cuGreenCtxDestroy " + text(green));
  program->drop("cuDevicePrimaryCtxRelease_v2", 0);
  expect_held(0);
  change_limit(0, kContext);
  EXPECT_EQ(result_of(*program, "cuGreenCtxCreate 0"), kOutOfMemory);
  expect_held(0);
}

TEST_F(HiddenTest, AGreenContextThatNvmlShowsLate) {
  const auto program = start();
  const std::uint64_t green = call(*program, "cuGreenCtxCreate " + text(kLate));
  program->must("current " + text(call(*program, "cuCtxFromGreenCtx " + text(green))));
  sleep_ms(kLateMs + 100);
  program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 2 * kMiB));
  expect_held(kContext + kGreen, kLate);
  call(*program, "cuGreenCtxDestroy " + text(green));
  expect_held(0, kLate);
}

TEST_F(HiddenTest, AKilledRanksGreenContextGoesToTheNext) {
  change_limit(0, 2 * kContext + kGreen);
  const auto survivor = start_on(0);
  const auto victim = start();
  call(*victim, "cuGreenCtxCreate 0");
  EXPECT_EQ(survivor->ask("make cuMemAlloc_v2 2097152").result, kOutOfMemory);
  victim->end(SIGKILL);
  survivor->drop("cuMemFree_v2", survivor->make("cuMemAlloc_v2", kContext + kGreen));
  EXPECT_EQ(charged(), kContext);
}

// ---- heaps ----------------------------------------------------------------------------------------------------------

class HeapTest : public HiddenTest, public testing::WithParamInterface<int> {};

TEST_P(HeapTest, AsLargeAsItIsAskedToBe) {
  const auto program = start_on(0);
  const std::string set = "cuCtxSetLimit " + std::to_string(GetParam()) + " ";
  const std::uint64_t standard = (GetParam() == CU_LIMIT_MALLOC_HEAP_SIZE ? 8 : 1) * kMiB;
  call(*program, set + text(standard + 16 * kMiB));
  expect_held(kContext + 16 * kMiB);
  EXPECT_EQ(charged(0, Kind::other), 16 * kMiB);
  change_limit(0, kContext + 24 * kMiB);
  EXPECT_EQ(result_of(*program, set + text(standard + 32 * kMiB)), kOutOfMemory);
  expect_held(kContext + 16 * kMiB);
  call(*program, set + text(standard + 24 * kMiB));
  expect_held(kContext + 24 * kMiB);
  call(*program, set + text(standard));
  expect_held(kContext);
}

TEST_P(HeapTest, AKilledRanksHeapGoesToTheNext) {
  change_limit(0, 2 * kContext + 16 * kMiB);
  const auto survivor = start_on(0);
  const auto victim = start_on(0);
  const std::uint64_t standard = (GetParam() == CU_LIMIT_MALLOC_HEAP_SIZE ? 8 : 1) * kMiB;
  call(*victim, "cuCtxSetLimit " + std::to_string(GetParam()) + " " + text(standard + 16 * kMiB));
  EXPECT_EQ(survivor->ask("make cuMemAlloc_v2 2097152").result, kOutOfMemory);
  victim->end(SIGKILL);
  survivor->drop("cuMemFree_v2", survivor->make("cuMemAlloc_v2", kContext + 16 * kMiB));
  EXPECT_EQ(charged(), kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, HeapTest,
                         testing::Values(int{CU_LIMIT_MALLOC_HEAP_SIZE}, int{CU_LIMIT_PRINTF_FIFO_SIZE}));

TEST_F(HiddenTest, OtherLimitsAreTheDrivers) {
  const auto program = start_on(0);
  call(*program, "cuCtxSetLimit " + std::to_string(CU_LIMIT_STACK_SIZE) + " 8192");
  EXPECT_EQ(result_of(*program, "cuCtxSetLimit 1234 1"), CUDA_ERROR_UNSUPPORTED_LIMIT);
  expect_held(kContext);
}

// ---- libraries ------------------------------------------------------------------------------------------------------

class LazyLibraryTest : public HiddenTest, public testing::WithParamInterface<const char *> {};

TEST_P(LazyLibraryTest, ChargedWithTheNextAllocation) {
  const auto program = start_on(0);
  // A library that is loaded before there is a context is loaded when something of it is first asked for.
  program->must("current 0");
  const std::uint64_t library = program->make("cuLibraryLoadData", 4 * kMiB);
  expect_held(kContext);
  const std::uint64_t context = program->make("cuCtxCreate_v2", 0);
  expect_held(2 * kContext);
  const std::string symbol = GetParam();
  const Answer answer = program->ask("call " + symbol + " " + text(library));
  if (symbol != "cuLibraryGetManaged") {
    EXPECT_EQ(answer.result, 0);
  }
  const std::uint64_t taken = node().held(0) - 2 * kContext;
  if (symbol != "cuLibraryGetManaged") {
    EXPECT_GE(taken, 4 * kMiB);
  }
  allocate_soon(*program);
  expect_held(2 * kContext + taken);
  program->drop("cuLibraryUnload", library);
  expect_held(2 * kContext);
  program->drop("cuCtxDestroy_v2", context);
}

INSTANTIATE_TEST_SUITE_P(Every, LazyLibraryTest,
                         testing::Values("cuLibraryGetModule", "cuLibraryGetGlobal", "cuLibraryGetManaged",
                                         "cuKernelGetFunction"),
                         [](const auto &info) { return std::string(info.param); });

TEST_F(HiddenTest, ALoadedFunctionIsMeasured) {
  const auto program = start_on(0);
  const std::uint64_t library = program->make("cuLibraryLoadData", 4 * kMiB);
  const std::uint64_t function = call(*program, "cuKernelGetFunction " + text(library));
  call(*program, "cuFuncLoad " + text(function));
  allocate_soon(*program);
  EXPECT_EQ(charged(), node().held(0));
  program->drop("cuLibraryUnload", library);
  expect_held(kContext);
}

}  // namespace
}  // namespace vgpu::test
