// Stream-ordered memory: what a pool keeps is charged, to the byte, and nothing is refused while some of it is idle.
#include "pool_support.h"

namespace vgpu::test {

using namespace region;
namespace {

// ---- every call that takes, and every one that gives back -----------------------------------------------------------

struct Way {
  const char *take;  // followed by the bytes and a stream, and with `pool` by that
  const char *free;
  bool pool;
};

class EveryPoolCallTest : public PoolTest, public testing::WithParamInterface<Way> {
 protected:
  std::string take(std::uint64_t bytes, std::uint64_t pool) const {
    return std::string(GetParam().take) + " " + text(bytes) + " 0" + (GetParam().pool ? " " + text(pool) : "");
  }
  void free_with(Program &program, std::uint64_t pointer) const {
    const std::string free = GetParam().free;
    if (free.rfind("cuMemFreeAsync", 0) == 0) {
      call(program, free + " " + text(pointer) + " 0");
    } else {
      program.drop(free, pointer);
    }
  }
  std::uint64_t pool_for(Program &program) const { return GetParam().pool ? make_pool(program) : 0; }
};

TEST_P(EveryPoolCallTest, TheStockIsCharged) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = pool_for(*program);
  const std::uint64_t small = call(*program, take(4 * kMiB, pool));
  expect_held(kContext + kChunk);
  const std::uint64_t more = call(*program, take(8 * kMiB, pool));
  expect_held(kContext + kChunk);  // from the same chunk
  const std::uint64_t large = call(*program, take(48 * kMiB, pool));
  expect_held(kContext + kChunk + 48 * kMiB);
  EXPECT_EQ(charged(0, Kind::data), kChunk + 48 * kMiB);
  free_with(*program, small);
  free_with(*program, large);
  synchronize(*program);
  expect_held(kContext + kChunk);  // `more` holds its chunk
  free_with(*program, more);
  synchronize(*program);
  expect_held(kContext);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_P(EveryPoolCallTest, RefusedAtTheLimit) {
  limit_to(kContext + 48 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = pool_for(*program);
  const std::uint64_t first = call(*program, take(40 * kMiB, pool));
  expect_held(kContext + 40 * kMiB);
  const Answer refused = program->ask("call " + take(40 * kMiB, pool));
  EXPECT_EQ(refused.result, kOutOfMemory);
  EXPECT_EQ(refused.number(), 0x5a5a5a5au) << "the output was touched";
  // A chunk does not fit into what is left, and the simulated driver does not know of the limit.
  EXPECT_EQ(result_of(*program, take(2 * kMiB, pool)), kOutOfMemory);
  expect_held(kContext + 40 * kMiB);
  free_with(*program, first);
  const std::uint64_t again = call(*program, take(48 * kMiB, pool));
  synchronize(*program);
  expect_held(kContext + 48 * kMiB);
  free_with(*program, again);
  synchronize(*program);
  expect_held(kContext);
  EXPECT_EQ(
      program->complaints(),
      std::vector<std::string>{refusal_line({0, "104MiB", "40MiB", "112MiB", held_by_itself(*program, "104MiB")})});
}

TEST_P(EveryPoolCallTest, WhatTheDriverRefusesIsGivenBack) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = pool_for(*program);
  node().set_broken(0, true);
  EXPECT_EQ(result_of(*program, take(4 * kMiB, pool)), CUDA_ERROR_DEVICE_UNAVAILABLE);
  node().set_broken(0, false);
  EXPECT_EQ(result_of(*program, take(0, pool)), CUDA_ERROR_INVALID_VALUE);
  expect_held(kContext);
}

TEST_P(EveryPoolCallTest, AKilledRanksStockGoesToTheNext) {
  limit_to(2 * kContext + 48 * kMiB);
  const auto survivor = start_on(0);
  const auto victim = start_on(0);
  call(*victim, take(48 * kMiB, pool_for(*victim)));
  const std::uint64_t pool = pool_for(*survivor);
  EXPECT_EQ(result_of(*survivor, take(kChunk, pool)), kOutOfMemory);
  victim->end(SIGKILL);
  const std::uint64_t pointer = call(*survivor, take(48 * kMiB, pool));
  EXPECT_EQ(charged(), kContext + 48 * kMiB);
  free_with(*survivor, pointer);
  synchronize(*survivor);
  EXPECT_EQ(charged(), kContext);
}

std::string name_of(const testing::TestParamInfo<Way> &info) {
  return std::string(info.param.take) + "_" + info.param.free;
}
INSTANTIATE_TEST_SUITE_P(Every, EveryPoolCallTest,
                         testing::Values(Way{"cuMemAllocAsync", "cuMemFreeAsync", false},
                                         Way{"cuMemAllocAsync", "cuMemFree_v2", false},
                                         Way{"cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz", false},
                                         Way{"cuMemAllocFromPoolAsync", "cuMemFreeAsync_ptsz", true},
                                         Way{"cuMemAllocFromPoolAsync_ptsz", "cuMemFreeAsync", true},
                                         Way{"cuMemAllocFromPoolAsync", "cuMemFree_v2", true}),
                         name_of);

// ---- when a pool gives back -----------------------------------------------------------------------------------------

class EverySynchronizationTest : public PoolTest, public testing::WithParamInterface<const char *> {};

TEST_P(EverySynchronizationTest, GivesBackWhatWasFreed) {
  limit_to(512 * kMiB);
  std::uint64_t context = 0;
  const auto program = start_on(0, &context);
  const std::string symbol = GetParam();
  const std::uint64_t event = call(*program, "cuEventCreate");
  release(*program, allocate(*program, 4 * kMiB));
  expect_held(kContext + kChunk);  // freed to the pool, not to the device
  call(*program, "cuEventRecord " + text(event) + " 0");
  const std::uint64_t what = symbol == "cuEventSynchronize" ? event : symbol == "cuCtxSynchronize_v2" ? context : 0;
  call(*program, symbol + " " + text(what));
  expect_held(kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, EverySynchronizationTest,
                         testing::Values("cuCtxSynchronize", "cuCtxSynchronize_v2", "cuStreamSynchronize",
                                         "cuStreamSynchronize_ptsz", "cuEventSynchronize"),
                         [](const auto &info) { return std::string(info.param); });

TEST_F(PoolTest, TheReleaseThresholdKeepsMemoryAndItsCharge) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = call(*program, "cuDeviceGetDefaultMemPool 0");
  call(*program, "threshold " + text(pool) + " " + text(40 * kMiB));
  release(*program, allocate(*program, 40 * kMiB));
  synchronize(*program);
  expect_held(kContext + 40 * kMiB);
  EXPECT_EQ(program->must("info"), 512 * kMiB - kContext - 40 * kMiB);
  // Used again, it is charged once.
  const std::uint64_t again = allocate(*program, 40 * kMiB);
  expect_held(kContext + 40 * kMiB);
  release(*program, again);
  call(*program, "cuMemPoolTrimTo " + text(pool) + " 0");
  expect_held(kContext);
}

TEST_F(PoolTest, ASynchronizationOfAnotherStreamIsNotTheLastLook) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t busy = call(*program, "cuStreamCreate 1"), idle = call(*program, "cuStreamCreate 1");
  const std::uint64_t pointer = allocate(*program, 4 * kMiB, busy);
  call(*program, "hold " + text(busy));
  release(*program, pointer, busy);
  call(*program, "cuStreamSynchronize " + text(idle));
  expect_held(kContext + kChunk);
  call(*program, "letgo");
  call(*program, "cuStreamSynchronize " + text(busy));
  expect_held(kContext);
}

TEST_F(PoolTest, IdleStockIsGivenBackBeforeAnybodyIsRefused) {
  limit_to(kContext + 64 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = call(*program, "cuDeviceGetDefaultMemPool 0");
  call(*program, "threshold " + text(pool) + " " + text(~std::uint64_t{0}));
  const auto fill = [&] {
    release(*program, allocate(*program, 64 * kMiB));
    synchronize(*program);
    expect_held(kContext + 64 * kMiB);
  };
  fill();
  program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 64 * kMiB));
  expect_held(kContext);
  fill();
  program->drop("cuArrayDestroy", program->make("cuArrayCreate_v2", 4 * kMiB));
  expect_held(kContext);
  fill();
  call(*program, "cuMemRelease " + text(call(*program, "cuMemCreate " + text(8 * kMiB) + " 0")));
  expect_held(kContext);
  fill();
  program->drop("cuModuleUnload", program->make("cuModuleLoadData", 0));
  EXPECT_EQ(charged(), kContext);
  fill();
  // Another pool of the same process.
  const std::uint64_t other = make_pool(*program);
  const std::uint64_t pointer = allocate_from(*program, other, 60 * kMiB);
  expect_held(kContext + 60 * kMiB);
  call(*program, "cuMemFreeAsync " + text(pointer) + " 0");
  call(*program, "cuMemPoolDestroy " + text(other));
  expect_held(kContext);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_F(PoolTest, WhatIsFreeInThePoolNeedsNoRoom) {
  limit_to(kContext + kChunk);
  const auto program = start_on(0);
  std::vector<std::uint64_t> pieces;
  for (unsigned i = 0; i < 8; ++i) pieces.push_back(allocate(*program, 4 * kMiB));
  expect_held(kContext + kChunk);
  EXPECT_EQ(result_of(*program, "cuMemAllocAsync 4194304 0"), kOutOfMemory);
  release(*program, pieces[3]);
  pieces[3] = allocate(*program, 4 * kMiB);
  release(*program, pieces[1]);
  release(*program, pieces[5]);
  // Eight are free, but nowhere in one piece: the pool would grow.
  EXPECT_EQ(result_of(*program, "cuMemAllocAsync 8388608 0"), kOutOfMemory);
  expect_held(kContext + kChunk);
}

TEST_F(PoolTest, IdlePiecesMakeRoomForAWholeOne) {
  limit_to(kContext + 80 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = call(*program, "cuDeviceGetDefaultMemPool 0");
  call(*program, "threshold " + text(pool) + " " + text(~std::uint64_t{0}));
  const std::uint64_t first = allocate(*program, 36 * kMiB), second = allocate(*program, 36 * kMiB);
  release(*program, first);
  release(*program, second);
  expect_held(kContext + 72 * kMiB);
  // Idle, and enough, but not in one piece.
  allocate(*program, 60 * kMiB);
  expect_held(kContext + 60 * kMiB);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

TEST_F(PoolTest, WhatThePoolReusesAtTheLimitStaysWhereItIs) {
  limit_to(kContext + 40 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = call(*program, "cuDeviceGetDefaultMemPool 0");
  call(*program, "threshold " + text(pool) + " " + text(~std::uint64_t{0}));
  const std::uint64_t first = allocate(*program, 40 * kMiB);
  for (unsigned i = 0; i < 5; ++i) {
    release(*program, first);
    EXPECT_EQ(allocate(*program, 40 * kMiB), first) << "given back and taken again";
    expect_held(kContext + 40 * kMiB);
  }
}

TEST_F(PoolTest, ALargeGrowthDoesNotMakeTheNextOneLarge) {
  limit_to(kContext + 100 * kMiB);
  const auto program = start_on(0);
  allocate(*program, 64 * kMiB);
  // A chunk fits; what the pool grew by last time would not.
  allocate(*program, 2 * kMiB);
  expect_held(kContext + 64 * kMiB + kChunk);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
}

}  // namespace
}  // namespace vgpu::test
