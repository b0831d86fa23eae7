// Every call that allocates, and every call that frees: charged, given back, refused, and right whatever goes wrong.
#include "hooks/cases.h"
#include "hooks/support.h"

namespace vgpu::test {

using namespace region;
namespace {

class ChargeTest : public HooksTest, public testing::WithParamInterface<Maker> {
 protected:
  const std::string symbol_ = GetParam().symbol;
  const std::string release_ = GetParam().release;
  bool is_managed() const { return symbol_ == "cuMemAllocManaged"; }

  // Managed memory takes device memory when it is used there, and is charged as if it always were.
  std::uint64_t make_resident(Program &program, std::uint64_t bytes) {
    const std::uint64_t handle = program.make(symbol_, bytes);
    if (is_managed()) program.must("touch " + std::to_string(handle) + " " + std::to_string(bytes));
    return handle;
  }
  void expect_refused(Program &program, std::uint64_t bytes) {
    const Answer answer = program.ask("make " + symbol_ + " " + std::to_string(bytes));
    EXPECT_EQ(answer.result, kOutOfMemory);
    EXPECT_EQ(answer.number(), kUntouched) << "the output was touched";
  }
};

TEST_P(ChargeTest, ChargedAndGivenBack) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  expect_held(kContext);
  const std::uint64_t first = make_resident(*program, 6 * kMiB);
  expect_held(kContext + 6 * kMiB);
  EXPECT_EQ(charged(0, Kind::data), 6 * kMiB);
  const std::uint64_t second = make_resident(*program, 2 * kMiB);
  expect_held(kContext + 8 * kMiB);
  program->drop(release_, first);
  expect_held(kContext + 2 * kMiB);
  program->drop(release_, second);
  expect_held(kContext);
  EXPECT_EQ(charged(0, Kind::data), 0u);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_P(ChargeTest, RefusedAtTheLimit) {
  limit_to(kContext + 8 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t first = make_resident(*program, 6 * kMiB);
  expect_refused(*program, 4 * kMiB);
  expect_refused(*program, 8 * kMiB);
  expect_held(kContext + 6 * kMiB);
  // To the last byte, and not one more.
  const std::uint64_t second = make_resident(*program, 2 * kMiB);
  expect_held(kContext + 8 * kMiB);
  expect_refused(*program, 2 * kMiB);
  program->drop(release_, first);
  const std::uint64_t again = make_resident(*program, 6 * kMiB);
  expect_held(kContext + 8 * kMiB);
  program->drop(release_, again);
  program->drop(release_, second);
  expect_held(kContext);
  // Three refusals, one line.
  EXPECT_EQ(program->complaints(),
            std::vector<std::string>{refusal_line({0, "70MiB", "4MiB", "72MiB", held_by_itself(*program, "70MiB")})});
}

TEST_P(ChargeTest, WhatTheDriverRefusesIsGivenBack) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t first = make_resident(*program, 2 * kMiB);

  EXPECT_EQ(program->ask("spoil " + symbol_ + " 4194304").result, CUDA_ERROR_INVALID_VALUE);
  expect_held(kContext + 2 * kMiB);

  node().set_broken(0, true);
  EXPECT_EQ(program->ask("make " + symbol_ + " 4194304").result, CUDA_ERROR_DEVICE_UNAVAILABLE);
  node().set_broken(0, false);
  expect_held(kContext + 2 * kMiB);

  // Somebody outside the job holds the rest of the device. Managed memory would go to the host.
  if (!is_managed()) {
    Program other(node(), "");
    other.must("init");
    other.make("cuCtxCreate_v2", 0);
    other.make("cuMemAlloc_v2", kDevice - 2 * kContext - 4 * kMiB);
    EXPECT_EQ(program->ask("make " + symbol_ + " 4194304").result, kOutOfMemory);
    EXPECT_EQ(charged(), kContext + 2 * kMiB);
  }
  program->drop(release_, first);
  EXPECT_EQ(charged(), kContext);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{}) << "the driver's refusals are not ours to explain";
}

TEST_P(ChargeTest, AFreeThatFailsChangesNothing) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t handle = make_resident(*program, 4 * kMiB);
  // The simulated driver follows the handles of arrays without looking, so only pointers can be wrong here.
  if (release_.rfind("cuMemFree", 0) == 0) {
    EXPECT_NE(program->ask("drop " + release_ + " " + std::to_string(handle + 512)).result, CUDA_SUCCESS);
    EXPECT_NE(program->ask("drop " + release_ + " 4096").result, CUDA_SUCCESS);
    node().set_broken(0, true);
    EXPECT_NE(program->ask("drop " + release_ + " " + std::to_string(handle)).result, CUDA_SUCCESS);
    node().set_broken(0, false);
  } else {
    EXPECT_NE(program->ask("drop " + release_ + " 0").result, CUDA_SUCCESS);
  }
  expect_held(kContext + 4 * kMiB);
  program->drop(release_, handle);
  expect_held(kContext);
  if (release_.rfind("cuMemFree", 0) == 0) {
    EXPECT_NE(program->ask("drop " + release_ + " " + std::to_string(handle)).result, CUDA_SUCCESS);
    EXPECT_EQ(program->ask("drop " + release_ + " 0").result, CUDA_SUCCESS);
  }
  expect_held(kContext);
}

TEST_P(ChargeTest, AKilledRanksMemoryGoesToTheNext) {
  limit_to(2 * kContext + 8 * kMiB);
  const auto survivor = start_on(0);
  const auto victim = start_on(0);
  make_resident(*victim, 8 * kMiB);
  expect_refused(*survivor, 2 * kMiB);
  victim->end(SIGKILL);
  // In one call, without waiting: its context's memory, too.
  const std::uint64_t handle = survivor->make(symbol_, kContext + 8 * kMiB);
  EXPECT_EQ(charged(), 2 * kContext + 8 * kMiB);
  EXPECT_EQ(charged(0, Kind::data), kContext + 8 * kMiB);
  survivor->drop(release_, handle);
  EXPECT_EQ(charged(), kContext);
}

TEST_P(ChargeTest, NoGhosts) {
  limit_to(512 * kMiB);
  const auto survivor = start_on(0);
  const auto victim = start_on(0);
  make_resident(*victim, 8 * kMiB);
  EXPECT_EQ(survivor->must("info"), 512 * kMiB - 2 * kContext - 8 * kMiB);
  victim->end(SIGKILL);
  sleep_ms(110);  // a question may be answered from the last sweep, if that was not long ago
  EXPECT_EQ(survivor->must("info"), 512 * kMiB - kContext);
}

TEST_P(ChargeTest, ARankThatEndsLeavesNothing) {
  limit_to(512 * kMiB);
  const auto survivor = start_on(0);
  const auto other = start_on(0);
  make_resident(*other, 8 * kMiB);
  EXPECT_EQ(survivor->must("info"), 512 * kMiB - 2 * kContext - 8 * kMiB);
  EXPECT_EQ(other->finish(), 0);
  EXPECT_EQ(survivor->must("info"), 512 * kMiB - kContext) << "it said that it would leave";
}

TEST_P(ChargeTest, AnyThreadMayFree) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t here = make_resident(*program, 4 * kMiB);
  const std::uint64_t there = program->must("thread make " + symbol_ + " 2097152");
  EXPECT_EQ(charged(), kContext + 6 * kMiB);
  program->must("thread drop " + release_ + " " + std::to_string(here));
  program->drop(release_, there);
  expect_held(kContext);
}

TEST_P(ChargeTest, GoesDownWithItsContext) {
  limit_to(512 * kMiB);
  std::uint64_t first = 0;
  const auto program = start_on(0, &first);
  make_resident(*program, 4 * kMiB);
  const std::uint64_t second = program->make("cuCtxCreate_v2", 0);
  const std::uint64_t doomed = make_resident(*program, 6 * kMiB);
  make_resident(*program, 2 * kMiB);
  expect_held(2 * kContext + 12 * kMiB);
  program->drop("cuCtxDestroy_v2", second);
  expect_held(kContext + 4 * kMiB);
  if (release_.rfind("cuMemFree", 0) == 0) {
    // What went down is gone, also for us.
    EXPECT_NE(program->ask("drop " + release_ + " " + std::to_string(doomed)).result, CUDA_SUCCESS);
    expect_held(kContext + 4 * kMiB);
  }
  program->drop("cuCtxDestroy_v2", first);
  expect_held(0);
}

TEST_P(ChargeTest, EachDeviceHasItsOwnLimit) {
  std::vector<DeviceSpec> devices = devices_of(node(), 512 * kMiB);
  devices[1].memory_limit = kContext + 4 * kMiB;
  make_region(devices);
  std::uint64_t on_first = 0, on_second = 0;
  const auto program = start_on(0, &on_first);
  on_second = program->make("cuCtxCreate_v2", 1);
  const std::uint64_t small = make_resident(*program, 4 * kMiB);
  expect_held(kContext, 0);
  expect_held(kContext + 4 * kMiB, 1);
  expect_refused(*program, 2 * kMiB);
  program->must("current " + std::to_string(on_first));
  const std::uint64_t large = make_resident(*program, 8 * kMiB);
  expect_held(kContext + 8 * kMiB, 0);
  // Freed from the other device's context: it is the device that was charged which gets it back.
  program->must("current " + std::to_string(on_second));
  program->drop(release_, large);
  expect_held(kContext, 0);
  program->must("current " + std::to_string(on_first));
  program->drop(release_, small);
  expect_held(kContext, 1);
}

TEST_P(ChargeTest, ALiveLimitHoldsAtOnce) {
  limit_to(kContext + 2 * kMiB);
  const auto program = start_on(0);
  expect_refused(*program, 4 * kMiB);
  change_limit(0, kContext + 4 * kMiB);
  const std::uint64_t handle = make_resident(*program, 4 * kMiB);
  change_limit(0, kContext);
  expect_refused(*program, 2 * kMiB);
  EXPECT_EQ(program->must("info"), 0u) << "over a lowered limit nothing is free, and nothing wraps";
  program->drop(release_, handle);
  expect_refused(*program, 2 * kMiB);
  change_limit(0, kContext + 2 * kMiB);
  program->drop(release_, make_resident(*program, 2 * kMiB));
  expect_held(kContext);
}

TEST_P(ChargeTest, SizesThatMakeNoSense) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  // 32-bit calls get the low half of these. Whatever the driver says to it, nothing stays charged.
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1} << 50, ~std::uint64_t{0}, ~std::uint64_t{0} - 511}) {
    const Answer answer = program->ask("make " + symbol_ + " " + std::to_string(bytes));
    if (answer.result == CUDA_SUCCESS) program->drop(release_, answer.number());
    expect_held(kContext);
  }
}

std::string name_of(const testing::TestParamInfo<Maker> &info) { return info.param.symbol; }
INSTANTIATE_TEST_SUITE_P(Every, ChargeTest, testing::ValuesIn(makers_of(Family::allocation)), name_of);

// ---- what only some of them do --------------------------------------------------------------------------------------

class AllocationTest : public HooksTest {};

TEST_F(AllocationTest, SmallOnesAreChargedByTheBlock) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t one = program->make("cuMemAlloc_v2", 1);
  expect_held(kContext + kBlock);
  const std::uint64_t more =
      program->make("cuMemAlloc_v2", 513);  // of another size, for which the driver opens another
  expect_held(kContext + 2 * kBlock);
  program->drop("cuMemFree_v2", one);
  program->drop("cuMemFree_v2", more);
  expect_held(kContext);
}

TEST_F(AllocationTest, EitherFreeTakesEitherPointer) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  for (const char *release : {"cuMemFree", "cuMemFree_v2"}) {
    program->drop(release, program->make("cuMemAlloc", 4 * kMiB));
    program->drop(release, program->make("cuMemAllocPitch", 4 * kMiB));
    expect_held(kContext);
  }
}

TEST_F(AllocationTest, MipmapsCountEveryLevel) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  // 4096 bytes x 2048 rows, 2048 x 1024, 1024 x 512, 512 x 256: then rows stay at 512 bytes.
  const std::uint64_t two = program->must("mipmap 1024 2048 2");
  expect_held(kContext + 10 * kMiB);
  const std::uint64_t four = program->must("mipmap 1024 2048 4");
  expect_held(kContext + 10 * kMiB + 12 * kMiB);  // 10.625 MiB, in whole blocks
  program->drop("cuMipmappedArrayDestroy", two);
  program->drop("cuMipmappedArrayDestroy", four);
  expect_held(kContext);
}

TEST_F(AllocationTest, ManagedMemoryIsChargedWhereverItIs) {
  limit_to(kContext + 8 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pointer = program->make("cuMemAllocManaged", 6 * kMiB);
  EXPECT_EQ(charged(), kContext + 6 * kMiB);
  EXPECT_EQ(node().held(0), kContext) << "it is on the host yet";
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 4194304").result, kOutOfMemory);
  program->drop("cuMemFree_v2", pointer);
  expect_held(kContext);
}

TEST_F(AllocationTest, WithoutALimitManagedMemoryMayBeLargerThanTheDevice) {
  limit_to(kNoLimit);
  const auto program = start_on(0);
  const std::uint64_t pointer = program->make("cuMemAllocManaged", 2 * kDevice);
  EXPECT_EQ(charged(), kContext + 2 * kDevice);
  program->drop("cuMemFree_v2", pointer);
  expect_held(kContext);
}

TEST_F(AllocationTest, AMillionLiveOnesCostNoMoreThanTen) {
#ifdef __SANITIZE_ADDRESS__
  constexpr unsigned kLive = 200'000;
#else
  constexpr unsigned kLive = 1'000'000;
#endif
  limit_to(kNoLimit);
  const auto program = start_on(0);
  const Answer answer = program->ask("flood " + std::to_string(kLive));
  ASSERT_EQ(answer.result, CUDA_SUCCESS);
  EXPECT_EQ(answer.number(0), kLive);
  const double few = std::stod(answer.values.at(1)), many = std::stod(answer.values.at(2));
  std::printf("a pair takes %.0f ns with 10 live allocations, %.0f ns with %u\n", few, many, kLive);
  EXPECT_LT(many, 4 * few);
  // What the driver rounded up while they were there counts until the next measurement.
  sleep_ms(1100);
  for (unsigned i = 0; i < 8; ++i) program->must("info");
  expect_held(kContext);
}

TEST_F(AllocationTest, WithoutALimitTheDeviceIsTheLimit) {
  limit_to(kNoLimit);
  const auto program = start_on(0);
  const std::uint64_t all = program->make("cuMemAlloc_v2", kDevice - kContext);
  expect_held(kDevice);
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 2097152").result, kOutOfMemory);
  expect_held(kDevice);
  program->drop("cuMemFree_v2", all);
}

}  // namespace
}  // namespace vgpu::test
