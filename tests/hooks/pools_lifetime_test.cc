// Pools beside each other: whose they are, how they end, and many threads on one.
#include "pool_support.h"

namespace vgpu::test {

using namespace region;
namespace {

// ---- whose pool -----------------------------------------------------------------------------------------------------

TEST_F(PoolTest, TheCurrentPoolIsTheOneThatIsSet) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t own = make_pool(*program);
  for (const bool new_calls : {false, true}) {
    const std::string get = new_calls ? "cuMemGetMemPool 0" : "cuDeviceGetMemPool 0";
    const std::string set = new_calls ? "cuMemSetMemPool 0 " : "cuDeviceSetMemPool 0 ";
    const std::string standard = new_calls ? "cuMemGetDefaultMemPool 0" : "cuDeviceGetDefaultMemPool 0";
    const std::uint64_t before = call(*program, get);
    EXPECT_EQ(before, call(*program, standard));
    call(*program, set + text(own));
    EXPECT_EQ(call(*program, get), own);
    const std::uint64_t pointer = allocate(*program, 36 * kMiB);
    EXPECT_EQ(call(*program, "reserved " + text(own)), 36 * kMiB);
    EXPECT_EQ(call(*program, "reserved " + text(before)), 0u);
    expect_held(kContext + 36 * kMiB);
    release(*program, pointer);
    call(*program, set + text(before));
    synchronize(*program);
    expect_held(kContext);
  }
}

TEST_F(PoolTest, APoolOfAnotherDeviceIsChargedThere) {
  std::vector<DeviceSpec> devices = devices_of(node(), 512 * kMiB);
  devices[1].memory_limit = kContext + 40 * kMiB;
  make_region(devices);
  const auto program = start_on(0);
  const std::uint64_t made = make_pool(*program, 1);
  const std::uint64_t standard = call(*program, "cuDeviceGetDefaultMemPool 1");
  for (const std::uint64_t pool : {made, standard}) {
    const std::uint64_t pointer = allocate_from(*program, pool, 40 * kMiB);
    expect_held(kContext, 0);
    EXPECT_EQ(charged(1), 40 * kMiB);
    EXPECT_EQ(node().held(1), 40 * kMiB);
    release(*program, pointer);
    synchronize(*program);
    EXPECT_EQ(charged(1), 0u);
  }
  EXPECT_EQ(result_of(*program, "cuMemAllocFromPoolAsync " + text(kContext + 42 * kMiB) + " 0 " + text(made)),
            kOutOfMemory);
}

TEST_F(PoolTest, TheStreamSaysWhichDevice) {
  limit_to(512 * kMiB);
  std::uint64_t first = 0;
  const auto program = start_on(0, &first);
  program->make("cuCtxCreate_v2", 1);
  const std::uint64_t stream = call(*program, "cuStreamCreate 1");
  program->must("current " + text(first));
  const std::uint64_t pointer = allocate(*program, 4 * kMiB, stream);
  expect_held(kContext, 0);
  expect_held(kContext + kChunk, 1);
  release(*program, pointer, stream);
  call(*program, "cuStreamSynchronize " + text(stream));
  expect_held(kContext, 1);
}

TEST_F(PoolTest, NothingFromADeviceThatIsNotTheJobs) {
  std::vector<DeviceSpec> devices = devices_of(node(), 512 * kMiB);
  devices.resize(1);
  make_region(devices);
  const auto program = start_on(0);
  const std::uint64_t standard = call(*program, "cuDeviceGetDefaultMemPool 1");
  EXPECT_EQ(result_of(*program, "cuMemAllocFromPoolAsync 4194304 0 " + text(standard)), kOutOfMemory);
  EXPECT_EQ(result_of(*program, "cuMemPoolCreate 1 0"), kOutOfMemory);
  EXPECT_EQ(result_of(*program, "cuMemCreate 4194304 1"), kOutOfMemory);
  EXPECT_EQ(result_of(*program, "cuGreenCtxCreate 1"), kOutOfMemory);
  EXPECT_EQ(result_of(*program, "cuMemPoolCreate 99 0"), CUDA_ERROR_INVALID_DEVICE) << "the driver's to say";
  EXPECT_EQ(result_of(*program, "cuMemCreate 4194304 99"), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(node().held(1), 0u);
  expect_held(kContext);
}

// ---- the end of a pool ----------------------------------------------------------------------------------------------

TEST_F(PoolTest, DestroyedWithItsStock) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = make_pool(*program);
  call(*program, "threshold " + text(pool) + " " + text(~std::uint64_t{0}));
  release(*program, allocate_from(*program, pool, 40 * kMiB));
  synchronize(*program);
  expect_held(kContext + 40 * kMiB);
  call(*program, "cuMemPoolDestroy " + text(pool));
  expect_held(kContext);
  EXPECT_NE(result_of(*program, "cuMemPoolDestroy " + text(call(*program, "cuDeviceGetDefaultMemPool 0"))), 0);
  const std::uint64_t pointer = allocate(*program, 40 * kMiB);
  expect_held(kContext + 40 * kMiB);
  EXPECT_NE(result_of(*program, "cuMemPoolDestroy " + text(call(*program, "cuDeviceGetDefaultMemPool 0"))), 0);
  expect_held(kContext + 40 * kMiB);
  release(*program, pointer);
  synchronize(*program);
  expect_held(kContext);
}

TEST_F(PoolTest, DestroyedWithMemoryInUse) {
  limit_to(kContext + 48 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = make_pool(*program);
  const std::uint64_t pointer = allocate_from(*program, pool, 40 * kMiB);
  call(*program, "cuMemPoolDestroy " + text(pool));
  expect_held(kContext + 40 * kMiB);
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 " + text(10 * kMiB)).result, kOutOfMemory) << "it is still there";
  expect_held(kContext + 40 * kMiB);
  release(*program, pointer);
  synchronize(*program);
  // Nobody asks NVML for a free; somebody who would be refused does.
  program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 48 * kMiB));
  expect_held(kContext);
}

TEST_F(PoolTest, AsManyAsThereArePlacesFor) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  std::vector<std::uint64_t> pools;
  Answer answer;
  while ((answer = program->ask("call cuMemPoolCreate 0 0")).result == 0) pools.push_back(answer.number());
  EXPECT_EQ(answer.result, kOutOfMemory) << "none that is not followed";
  EXPECT_EQ(pools.size(), 256u);
  const std::uint64_t pointer = allocate_from(*program, pools.back(), 4 * kMiB);
  expect_held(kContext + kChunk);
  release(*program, pointer);
  for (const std::uint64_t pool : pools) call(*program, "cuMemPoolDestroy " + text(pool));
  expect_held(kContext);
  make_pool(*program);
}

TEST_F(PoolTest, StaysWhenContextsGo) {
  limit_to(512 * kMiB);
  const auto program = start();
  program->make("cuDevicePrimaryCtxRetain", 0);
  const std::uint64_t context = program->make("cuCtxCreate_v2", 0);
  allocate(*program, 4 * kMiB);
  expect_held(2 * kContext + kChunk);
  program->drop("cuDevicePrimaryCtxReset_v2", 0);
  EXPECT_EQ(charged(), node().held(0));
  program->drop("cuCtxDestroy_v2", context);
  EXPECT_EQ(charged(), node().held(0));
}

// ---- plain memory, freed in stream order ----------------------------------------------------------------------------

TEST_F(PoolTest, PlainMemoryFreedInStreamOrder) {
  limit_to(kContext + 8 * kMiB);
  const auto program = start_on(0);
  release(*program, program->make("cuMemAlloc_v2", 8 * kMiB));
  EXPECT_EQ(node().held(0), kContext);
  EXPECT_LE(charged(), kContext + 8 * kMiB) << "never charged twice";
  // Whoever needs the room has it.
  program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 8 * kMiB));
  expect_held(kContext);

  const std::uint64_t stream = call(*program, "cuStreamCreate 1");
  const std::uint64_t pointer = program->make("cuMemAlloc_v2", 8 * kMiB);
  call(*program, "hold " + text(stream));
  release(*program, pointer, stream);
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 2097152").result, kOutOfMemory) << "its stream has not come there yet";
  expect_held(kContext + 8 * kMiB);
  call(*program, "letgo");
  call(*program, "cuStreamSynchronize " + text(stream));
  program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 8 * kMiB));
  expect_held(kContext);
  EXPECT_NE(result_of(*program, "cuMemFreeAsync 4096 0"), 0);
  expect_held(kContext);
}

// ---- threads --------------------------------------------------------------------------------------------------------

TEST_F(PoolTest, ThreadsOnOnePoolAreNeverRefusedWhatFits) {
  // Each thread may grow the pool by a chunk, and all of that fits.
  limit_to(kContext + 4 * kChunk);
  const auto program = start_on(0);
  const std::uint64_t pool = make_pool(*program);
  EXPECT_EQ(call(*program, "race " + text(pool) + " 4 400 " + text(kChunk)), 0u);
  synchronize(*program);
  expect_held(kContext);
}

TEST_F(PoolTest, ThreadsOnOnePoolAtTheLimit) {
  limit_to(kContext + 2 * kChunk);
  const auto program = start_on(0);
  const std::uint64_t pool = make_pool(*program);
  const std::uint64_t kept = allocate_from(*program, pool, 20 * kMiB);
  call(*program, "race " + text(pool) + " 4 400 " + text(24 * kMiB));
  synchronize(*program);
  expect_held(kContext + kChunk);
  release(*program, kept);
  synchronize(*program);
  expect_held(kContext);
}

TEST_F(PoolTest, WithoutALimitTheDeviceIsTheLimit) {
  limit_to(kNoLimit);
  const auto program = start_on(0);
  const std::uint64_t all = allocate(*program, kDevice - kContext);
  expect_held(kDevice);
  EXPECT_EQ(result_of(*program, "cuMemAllocAsync 2097152 0"), kOutOfMemory);
  release(*program, all);
  synchronize(*program);
  expect_held(kContext);
}

}  // namespace
}  // namespace vgpu::test
