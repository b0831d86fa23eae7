// Physical memory: charged to the device it is on, from cuMemCreate until its last handle and its last mapping are gone.
#include <algorithm>

#include "driver/cuda_api.h"
#include "hooks/support.h"

namespace vgpu::test {
namespace {

constexpr std::uint64_t kPiece = 6 * kMiB;

class PhysicalTest : public OneRankTest {
 protected:
  std::uint64_t create(std::uint64_t bytes = kPiece, int device = 0) {
    return call("cuMemCreate " + text(bytes) + " " + std::to_string(device));
  }
  std::uint64_t reserve(std::uint64_t bytes = kPiece) { return call("cuMemAddressReserve " + text(bytes)); }
  void map(std::uint64_t address, std::uint64_t handle, std::uint64_t bytes = kPiece) {
    call("cuMemMap " + text(address) + " " + text(bytes) + " " + text(handle));
  }
  void unmap(std::uint64_t address, std::uint64_t bytes = kPiece) {
    call("cuMemUnmap " + text(address) + " " + text(bytes));
  }
  void release(std::uint64_t handle) { call("cuMemRelease " + text(handle)); }
};

TEST_F(PhysicalTest, AddressesCostNothing) {
  const std::uint64_t address = reserve(64 * 1024 * kMiB);
  expect_held(kContext);
  call("cuMemAddressFree " + text(address) + " " + text(64 * 1024 * kMiB));
  const std::uint64_t on_host = create(kPiece, -1);
  expect_held(kContext);
  release(on_host);
  expect_held(kContext);
}

// Two mappings and two handles, let go in every order.
TEST_F(PhysicalTest, GoneWithTheLastOfWhatHoldsIt) {
  std::vector<int> order = {0, 1, 2, 3};
  const std::uint64_t here = reserve(), there = reserve();
  do {
    const std::uint64_t handle = create();
    expect_held(kContext + kPiece);
    map(here, handle);
    map(there, handle);
    const std::uint64_t again = call("cuMemRetainAllocationHandle " + text(here + 2 * kMiB));
    expect_held(kContext + kPiece);
    for (std::size_t i = 0; i < order.size(); ++i) {
      expect_held(kContext + kPiece);
      if (order[i] == 0) release(handle);
      if (order[i] == 1) release(again);
      if (order[i] == 2) unmap(here);
      if (order[i] == 3) unmap(there);
    }
    expect_held(kContext);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(PhysicalTest, OneRangeOfSeveralMappings) {
  const std::uint64_t range = reserve(3 * kPiece);
  const std::uint64_t first = create(), second = create(), third = create();
  map(range, first);
  map(range + kPiece, second);
  map(range + 2 * kPiece, third);
  for (const std::uint64_t handle : {first, second, third}) release(handle);
  expect_held(kContext + 3 * kPiece);
  EXPECT_NE(result_of("cuMemUnmap " + text(range) + " " + text(kPiece + 2 * kMiB)), 0) << "not a whole mapping";
  expect_held(kContext + 3 * kPiece);
  unmap(range + kPiece, 2 * kPiece);
  expect_held(kContext + kPiece);
  unmap(range);
  expect_held(kContext);
}

TEST_F(PhysicalTest, AReleaseThatFailsChangesNothing) {
  const std::uint64_t handle = create();
  EXPECT_NE(result_of("cuMemRelease 0"), 0);
  EXPECT_NE(result_of("cuMemMap 4096 2097152 " + text(handle)), 0);
  expect_held(kContext + kPiece);
  const std::uint64_t address = reserve();
  EXPECT_NE(result_of("cuMemUnmap " + text(address) + " " + text(kPiece)), 0);
  EXPECT_NE(result_of("cuMemRetainAllocationHandle " + text(address)), 0);
  release(handle);
  expect_held(kContext);
}

TEST_F(PhysicalTest, HandlesAreUsedAgain) {
  // The simulated driver gives the same handle to the next piece. What one was must not count for the other.
  const std::uint64_t address = reserve();
  for (unsigned i = 0; i < 50; ++i) {
    const std::uint64_t handle = create(), other = create(2 * kMiB);
    map(address, handle);
    release(handle);
    release(other);
    expect_held(kContext + kPiece);
    const std::uint64_t fresh = create(4 * kMiB);
    expect_held(kContext + kPiece + 4 * kMiB);
    unmap(address);
    expect_held(kContext + 4 * kMiB);
    release(fresh);
    expect_held(kContext);
  }
}

TEST_F(PhysicalTest, RefusedAtTheLimit) {
  change_limit(0, kContext + 8 * kMiB);
  const std::uint64_t handle = create();
  const Answer refused = program_->ask("call cuMemCreate 4194304 0");
  EXPECT_EQ(refused.result, kOutOfMemory);
  EXPECT_EQ(refused.number(), 0x5a5a5a5au) << "the output was touched";
  expect_held(kContext + kPiece);
  const std::uint64_t last = create(2 * kMiB);
  expect_held(kContext + 8 * kMiB);
  EXPECT_EQ(result_of("cuMemCreate 1 0"), kOutOfMemory);
  release(handle);
  release(last);
  EXPECT_EQ(result_of("cuMemCreate 1 0"), CUDA_ERROR_INVALID_VALUE) << "the driver's to say";
  expect_held(kContext);
  EXPECT_EQ(program_->complaints().size(), 1u);
}

TEST_F(PhysicalTest, ChargedToTheDeviceItIsOn) {
  change_limit(1, 8 * kMiB);
  const std::uint64_t handle = create(8 * kMiB, 1);
  expect_held(kContext, 0);
  expect_held(8 * kMiB, 1);
  EXPECT_EQ(result_of("cuMemCreate 2097152 1"), kOutOfMemory);
  release(handle);
  expect_held(0, 1);
}

TEST_F(PhysicalTest, OutlivesContexts) {
  const std::uint64_t context = program_->make("cuCtxCreate_v2", 0);
  const std::uint64_t handle = create();
  program_->drop("cuCtxDestroy_v2", context);
  expect_held(kContext + kPiece);
  release(handle);
  expect_held(kContext);
}

TEST_F(PhysicalTest, AKilledRanksPiecesGoToTheNext) {
  change_limit(0, 2 * kContext + 8 * kMiB);
  const auto victim = start_on(0);
  const std::uint64_t handle = victim->must("call cuMemCreate 8388608 0");
  const std::uint64_t address = victim->must("call cuMemAddressReserve 8388608");
  victim->must("call cuMemMap " + text(address) + " 8388608 " + text(handle));
  EXPECT_EQ(result_of("cuMemCreate 2097152 0"), kOutOfMemory);
  victim->end(SIGKILL);
  const std::uint64_t own = create(kContext + 8 * kMiB);
  EXPECT_EQ(charged(), 2 * kContext + 8 * kMiB);
  release(own);
  EXPECT_EQ(charged(), kContext);
}

// ---- held by what is not a mapping ----------------------------------------------------------------------------------

class ArrayMappingTest : public PhysicalTest, public testing::WithParamInterface<const char *> {};

TEST_P(ArrayMappingTest, BehindAnArray) {
  const std::string symbol = GetParam();
  for (const bool sparse : {false, true}) {
    const std::uint64_t array = call("bare_array " + text(4 * kMiB) + (sparse ? " 1" : " 0"));
    expect_held(kContext);
    const std::uint64_t handle = create(4 * kMiB);
    call(symbol + " " + text(array) + " " + text(handle));
    expect_held(kContext + 4 * kMiB);
    release(handle);
    expect_held(kContext + 4 * kMiB);  // the array has it
    call(symbol + " " + text(array) + " 0");
    EXPECT_EQ(node().held(0), kContext);
    program_->drop("cuArrayDestroy", array);

    const std::uint64_t other = call("bare_array " + text(4 * kMiB) + (sparse ? " 1" : " 0"));
    const std::uint64_t behind = create(4 * kMiB);
    call(symbol + " " + text(other) + " " + text(behind));
    program_->drop("cuArrayDestroy", other);
    release(behind);
    expect_held(kContext);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ArrayMappingTest, testing::Values("cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"),
                         [](const auto &info) { return std::string(info.param); });

TEST_F(PhysicalTest, BoundToAMulticastObject) {
  const std::uint64_t object = call("cuMulticastCreate " + text(kPiece) + " 2");
  call("cuMulticastAddDevice " + text(object) + " 0");
  call("cuMulticastAddDevice " + text(object) + " 1");
  expect_held(kContext);
  expect_held(0, 1);
  const std::uint64_t here = create(), there = create(kPiece, 1), address = reserve();
  call("cuMulticastBindMem " + text(object) + " " + text(here) + " " + text(kPiece));
  map(address, there);
  call("cuMulticastBindAddr " + text(object) + " " + text(address) + " " + text(kPiece));
  unmap(address);
  map(address, object);
  expect_held(kContext + kPiece);
  EXPECT_EQ(charged(1), kPiece);
  // Bound, it stays when its handle goes.
  release(here);
  expect_held(kContext + kPiece);
  call("cuMulticastUnbind " + text(object) + " 0 " + text(kPiece));
  EXPECT_EQ(node().held(0), kContext);
  call("cuMulticastUnbind " + text(object) + " 1 " + text(kPiece));
  release(there);
  EXPECT_EQ(node().held(1), 0u);
  unmap(address);
  release(object);
  // Whoever needs the room has it.
  change_limit(0, kContext + kPiece);
  release(create());
  expect_held(kContext);
}

}  // namespace
}  // namespace vgpu::test
