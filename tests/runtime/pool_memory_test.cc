// Pools and physical memory, with two threads in the driver at once, and with a driver that grows as it likes.
//
// A driver may give the handle of what it destroyed to another thread before the call that destroyed it has returned; the
// simulated one never does so, and never grows a pool for one thread while another is half-way. This one does both.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "fake_driver.h"

namespace vgpu::test {
namespace {

const auto kContext = reinterpret_cast<CUcontext>(0x1000);
const auto kPool = reinterpret_cast<CUmemoryPool>(0x2000);
constexpr CUmemGenericAllocationHandle kHandle = 0x3000;
constexpr std::uint64_t kLimit = 64 * kMiB;

// What the driver's pool is like.
std::atomic<std::uint64_t> there, used_bytes;
std::uint64_t growth;  // of the next allocation, whatever it asks for
CUresult answer;
std::function<void()> meanwhile;  // what the other thread does when the driver is done and has not yet returned

void let_the_other_in() {
  if (meanwhile) std::exchange(meanwhile, nullptr)();
}

CUmemPoolProps pool_properties() {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return properties;
}

class StockTest : public AttachedTest {
 protected:
  void SetUp() override {
    attach_to_the_only_device(kLimit);
    answer = CUDA_SUCCESS;
    meanwhile = nullptr;
    there = used_bytes = growth = 0;
    FAKE(
        cuCtxGetCurrent, (CUcontext * context)->CUresult {
          *context = kContext;
          return CUDA_SUCCESS;
        });
    FAKE(
        cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *)->CUresult {
          *pool = kPool;
          return answer;
        });
    FAKE(
        cuMemPoolDestroy, (CUmemoryPool)->CUresult {
          if (answer == CUDA_SUCCESS) there = used_bytes.load();
          const CUresult result = answer;
          let_the_other_in();
          return result;
        });
    FAKE(
        cuMemPoolTrimTo, (CUmemoryPool, std::size_t)->CUresult {
          there = used_bytes.load();
          return CUDA_SUCCESS;
        });
    FAKE(
        cuMemPoolGetAttribute, (CUmemoryPool, CUmemPool_attribute attribute, void *value)->CUresult {
          const bool reserved = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
          *static_cast<cuuint64_t *>(value) = reserved ? there.load() : used_bytes.load();
          return CUDA_SUCCESS;
        });
    FAKE(
        cuMemAllocFromPoolAsync, (CUdeviceptr * pointer, std::size_t bytes, CUmemoryPool, CUstream)->CUresult {
          if (answer != CUDA_SUCCESS) return answer;
          *pointer = 0x7000 + bytes;
          used_bytes += bytes;
          there += growth;
          let_the_other_in();
          return CUDA_SUCCESS;
        });
    FAKE(
        cuMemFreeAsync, (CUdeviceptr pointer, CUstream)->CUresult {
          used_bytes -= pointer - 0x7000;
          return CUDA_SUCCESS;
        });
    FAKE(
        cuStreamSynchronize, (CUstream)->CUresult { return CUDA_SUCCESS; });
    FAKE(
        cuMemCreate,
        (CUmemGenericAllocationHandle * handle, std::size_t, const CUmemAllocationProp *, unsigned long long)
            ->CUresult {
              *handle = kHandle;
              return answer;
            });
    FAKE(
        cuMemRelease, (CUmemGenericAllocationHandle)->CUresult {
          const CUresult result = answer;
          let_the_other_in();
          return result;
        });
  }

  static CUmemoryPool make_pool() {
    const CUmemPoolProps properties = pool_properties();
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    return pool;
  }
  static CUresult allocate(std::uint64_t bytes, std::uint64_t grows) {
    growth = grows;
    CUdeviceptr pointer = 0;
    return cuMemAllocFromPoolAsync(&pointer, bytes, kPool, nullptr);
  }
  static void empty_pool() {
    used_bytes = there = 0;
    ASSERT_EQ(cuMemPoolTrimTo(kPool, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemPoolDestroy(kPool), CUDA_SUCCESS);
  }
  static void make_piece(std::uint64_t bytes) {
    CUmemAllocationProp properties = {};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS);
  }
};

// ---- pools ----------------------------------------------------------------------------------------------------------

TEST_F(StockTest, WhatItGrewByIsCharged) {
  make_pool();
  ASSERT_EQ(allocate(2 * kMiB, 10 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 10 * kMiB);
  ASSERT_EQ(allocate(4 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(used(), 10 * kMiB);
  ASSERT_EQ(allocate(8 * kMiB, 6 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 16 * kMiB);
  empty_pool();
  EXPECT_EQ(used(), 0u);
}

TEST_F(StockTest, AGrowthThatDoesNotFitIsUndone) {
  make_pool();
  ASSERT_EQ(allocate(40 * kMiB, 40 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(allocate(2 * kMiB, 32 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(there, 40 * kMiB);
  EXPECT_EQ(used(), 40 * kMiB);
  empty_pool();
  EXPECT_EQ(used(), 0u);
}

TEST_F(StockTest, ACallThatFailsGivesBackWhatItReserved) {
  make_pool();
  answer = CUDA_ERROR_INVALID_HANDLE;
  EXPECT_EQ(allocate(2 * kMiB, 0), CUDA_ERROR_INVALID_HANDLE);
  answer = CUDA_SUCCESS;
  EXPECT_EQ(used(), 0u);
  empty_pool();
}

TEST_F(StockTest, AnotherThreadsGrowthIsCoveredByWhatThatReserved) {
  make_pool();
  std::atomic<bool> half_way{false}, go_on{false};
  meanwhile = [&] {
    half_way = true;
    while (!go_on) std::this_thread::yield();
  };
  // 40 MiB are there, reserved, and not settled ...
  std::thread other([] { EXPECT_EQ(allocate(40 * kMiB, 40 * kMiB), CUDA_SUCCESS); });
  while (!half_way) std::this_thread::yield();
  EXPECT_EQ(used(), 40 * kMiB);
  // ... when this one looks, which needs 20 of the 24 that are left.
  EXPECT_EQ(allocate(20 * kMiB, 20 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 60 * kMiB);
  go_on = true;
  other.join();
  EXPECT_EQ(used(), 60 * kMiB);
  empty_pool();
  EXPECT_EQ(used(), 0u);
}

TEST_F(StockTest, WhatOneGrewTheOtherMayUse) {
  make_pool();
  std::atomic<bool> half_way{false}, go_on{false};
  meanwhile = [&] {
    half_way = true;
    while (!go_on) std::this_thread::yield();
  };
  // One asked for 4 and grew by 32, the other takes from that: whoever looks first charges it, once.
  std::thread other([] { EXPECT_EQ(allocate(4 * kMiB, 32 * kMiB), CUDA_SUCCESS); });
  while (!half_way) std::this_thread::yield();
  EXPECT_EQ(used(), 4 * kMiB);
  EXPECT_EQ(allocate(8 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(used(), 32 * kMiB);
  go_on = true;
  other.join();
  EXPECT_EQ(used(), 32 * kMiB);
  empty_pool();
  EXPECT_EQ(used(), 0u);
}

TEST_F(StockTest, NobodyIsRefusedBecauseOfAnothersUnfinishedCall) {
  make_pool();
  ASSERT_EQ(allocate(30 * kMiB, 30 * kMiB), CUDA_SUCCESS);
  used_bytes = there = 0;  // freed and given back, and nobody has looked
  std::atomic<bool> half_way{false};
  meanwhile = [&] {
    half_way = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  // The other one's 30 MiB are there. Until it looks, they seem to be those of before, and 60 are charged.
  std::thread other([] { EXPECT_EQ(allocate(30 * kMiB, 30 * kMiB), CUDA_SUCCESS); });
  while (!half_way) std::this_thread::yield();
  EXPECT_EQ(allocate(20 * kMiB, 20 * kMiB), CUDA_SUCCESS);
  other.join();
  EXPECT_EQ(used(), 50 * kMiB);
  empty_pool();
  EXPECT_EQ(used(), 0u);
}

TEST_F(StockTest, ADestroyedPoolsHandleIsAnothersBeforeTheCallReturns) {
  make_pool();
  ASSERT_EQ(allocate(8 * kMiB, 8 * kMiB), CUDA_SUCCESS);
  used_bytes = 0;
  meanwhile = [] {
    there = 0;
    ASSERT_EQ(make_pool(), kPool);
    ASSERT_EQ(allocate(2 * kMiB, 4 * kMiB), CUDA_SUCCESS);
  };
  ASSERT_EQ(cuMemPoolDestroy(kPool), CUDA_SUCCESS);
  EXPECT_EQ(used(), 4 * kMiB);
  ASSERT_EQ(allocate(2 * kMiB, 2 * kMiB), CUDA_SUCCESS) << "the new one is known";
  EXPECT_EQ(used(), 6 * kMiB);
  empty_pool();
  EXPECT_EQ(used(), 0u);
}

TEST_F(StockTest, APoolThatIsNotDestroyedKeepsItsCharge) {
  make_pool();
  ASSERT_EQ(allocate(8 * kMiB, 8 * kMiB), CUDA_SUCCESS);
  answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(cuMemPoolDestroy(kPool), CUDA_ERROR_INVALID_VALUE);
  answer = CUDA_SUCCESS;
  EXPECT_EQ(used(), 8 * kMiB);
  ASSERT_EQ(allocate(2 * kMiB, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 10 * kMiB);
  empty_pool();
  EXPECT_EQ(used(), 0u);
}

// ---- physical memory ------------------------------------------------------------------------------------------------

TEST_F(StockTest, AReleasedHandleIsAnothersBeforeTheReleaseReturns) {
  make_piece(2 * kMiB);
  meanwhile = [] { make_piece(6 * kMiB); };
  ASSERT_EQ(cuMemRelease(kHandle), CUDA_SUCCESS);
  EXPECT_EQ(used(), 6 * kMiB);
  ASSERT_EQ(cuMemRelease(kHandle), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_F(StockTest, AReleaseThatFailsLeavesItCharged) {
  make_piece(2 * kMiB);
  answer = CUDA_ERROR_INVALID_VALUE;
  ASSERT_EQ(cuMemRelease(kHandle), CUDA_ERROR_INVALID_VALUE);
  answer = CUDA_SUCCESS;
  EXPECT_EQ(used(), 2 * kMiB);
  ASSERT_EQ(cuMemRelease(kHandle), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

}  // namespace
}  // namespace vgpu::test
