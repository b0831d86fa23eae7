// Modules and libraries: loaded, measured, charged; what does not fit is unloaded again.
#include "cases.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

class ModuleTest : public HooksTest, public testing::WithParamInterface<Maker> {
 protected:
  const std::string symbol_ = GetParam().symbol;
  const std::string release_ = GetParam().release;
  bool is_library() const { return symbol_.find("Library") != std::string::npos; }
  // The simulated driver brings a library's code to the device when it is first used, as real ones do.
  std::uint64_t bytes_of_load(std::uint64_t variables) const { return is_library() ? 0 : kModule + variables; }
};

TEST_P(ModuleTest, ChargedAndGivenBack) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t small = program->make(symbol_, 4 * kMiB);
  expect_held(kContext + bytes_of_load(4 * kMiB));
  EXPECT_EQ(charged(0, Kind::module), bytes_of_load(4 * kMiB));
  const std::uint64_t large = program->make(symbol_, 10 * kMiB);
  expect_held(kContext + bytes_of_load(4 * kMiB) + bytes_of_load(10 * kMiB));
  program->drop(release_, small);
  expect_held(kContext + bytes_of_load(10 * kMiB));
  program->drop(release_, large);
  expect_held(kContext);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_P(ModuleTest, RefusedAtTheLimit) {
  limit_to(kContext + 4 * kMiB);
  const auto program = start_on(0);
  const Answer answer = program->ask("make " + symbol_ + " 8388608");
  if (is_library()) {
    EXPECT_EQ(answer.result, CUDA_SUCCESS) << "it takes nothing yet";
    program->drop(release_, answer.number());
    return;
  }
  EXPECT_EQ(answer.result, kOutOfMemory);
  EXPECT_EQ(answer.number(), kUntouched);
  EXPECT_EQ(program->ask("make " + symbol_ + " 6291456").result, kOutOfMemory);
  expect_held(kContext);
  program->drop(release_, program->make(symbol_, 2 * kMiB));
  expect_held(kContext);
  EXPECT_EQ(program->complaints(),
            std::vector<std::string>{refusal_line({0, "64MiB", "10MiB", "68MiB", held_by_itself(*program, "64MiB")})});
}

// What the last module took is only a guess at what this one takes: no refusal rests on it.
TEST_P(ModuleTest, ALargeOneBeforeIsNoReasonToRefuse) {
  limit_to(kContext + 12 * kMiB);
  const auto program = start_on(0);
  program->drop("cuModuleUnload", program->make("cuModuleLoadData", 8 * kMiB));
  const std::uint64_t pointer = program->make("cuMemAlloc_v2", 8 * kMiB);
  const std::uint64_t small = program->make(symbol_, 2 * kMiB);
  expect_held(kContext + 8 * kMiB + bytes_of_load(2 * kMiB));
  program->drop(release_, small);
  program->drop("cuMemFree_v2", pointer);
  expect_held(kContext);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_P(ModuleTest, WhatTheDriverRefusesIsGivenBack) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  // So that something is reserved for the next one.
  program->drop("cuModuleUnload", program->make("cuModuleLoadData", 8 * kMiB));
  EXPECT_EQ(program->ask("spoil " + symbol_ + " 4194304").result, CUDA_ERROR_INVALID_VALUE);
  expect_held(kContext);
  if (!is_library()) {
    node().set_broken(0, true);
    EXPECT_EQ(program->ask("make " + symbol_ + " 4194304").result, CUDA_ERROR_DEVICE_UNAVAILABLE);
    node().set_broken(0, false);
    expect_held(kContext);
    Program other(node(), "");
    other.must("init");
    other.make("cuCtxCreate_v2", 0);
    other.make("cuMemAlloc_v2", kDevice - 2 * kContext - 2 * kMiB);
    EXPECT_EQ(program->ask("make " + symbol_ + " 4194304").result, kOutOfMemory);
    EXPECT_EQ(charged(), kContext);
  }
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_P(ModuleTest, AKilledRanksModuleGoesToTheNext) {
  limit_to(2 * kContext + 10 * kMiB);
  const auto survivor = start_on(0);
  const auto victim = start_on(0);
  const std::uint64_t loaded = victim->make(symbol_, 8 * kMiB);
  if (is_library()) {
    victim->must("code " + std::to_string(loaded));
    victim->drop("cuLibraryUnload", victim->make("cuLibraryLoadData", 0));  // which measures the other as well
  }
  EXPECT_EQ(charged(), 2 * kContext + 10 * kMiB);
  EXPECT_EQ(survivor->ask("make cuMemAlloc_v2 4194304").result, kOutOfMemory);
  victim->end(SIGKILL);
  survivor->make("cuMemAlloc_v2", kContext + 10 * kMiB);
  EXPECT_EQ(charged(), 2 * kContext + 10 * kMiB);
}

TEST_P(ModuleTest, GoesDownWithItsContext) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t context = program->make("cuCtxCreate_v2", 0);
  const std::uint64_t loaded = program->make(symbol_, 8 * kMiB);
  if (is_library()) program->must("code " + std::to_string(loaded));
  program->drop("cuCtxDestroy_v2", context);
  expect_held(kContext);
}

TEST_P(ModuleTest, NeedsNoContextOfTheJob) {
  limit_to(512 * kMiB);
  const auto program = start();
  const Answer answer = program->ask("make " + symbol_ + " 2097152");
  EXPECT_EQ(answer.result, is_library() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
  expect_held(0);
  if (is_library()) program->drop(release_, answer.number());
}

std::string name_of(const testing::TestParamInfo<Maker> &info) { return info.param.symbol; }
INSTANTIATE_TEST_SUITE_P(Every, ModuleTest, testing::ValuesIn(makers_of(Family::module)), name_of);

class ModulesTest : public HooksTest {};

// The driver loads a library's code at its first use, by whichever call that is: the next measurement finds it.
TEST_F(ModulesTest, ALibrarysCodeIsFoundByTheNextMeasurement) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t library = program->make("cuLibraryLoadData", 8 * kMiB);
  program->must("code " + std::to_string(library));
  EXPECT_EQ(node().held(0), kContext + kModule + 8 * kMiB);
  program->drop("cuLibraryUnload", program->make("cuLibraryLoadData", 0));
  expect_held(kContext + kModule + 8 * kMiB);
  program->drop("cuLibraryUnload", library);
  expect_held(kContext);
}

}  // namespace
}  // namespace vgpu::test
