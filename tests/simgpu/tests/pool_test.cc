// Stream-ordered pools and virtual memory management.
#include <unistd.h>

#include "support.h"

namespace {

class Pools : public ContextTest {
 protected:
  CUmemoryPool default_pool() {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
  }
  static cuuint64_t get(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
  }
  static CUmemPoolProps properties() {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return props;
  }
};

TEST_F(Pools, ReservedIsWhatTheDeviceLacks) {
  CUdeviceptr p;
  CUmemoryPool pool = default_pool();
  OK(cuMemAllocAsync(&p, kMiB, nullptr));
  EXPECT_EQ(32 * kMiB, get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  EXPECT_EQ(kMiB, get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  EXPECT_EQ(free_at_start_ - 32 * kMiB, free_bytes());
  OK(cuMemFreeAsync(p, nullptr));
  EXPECT_EQ(0u, get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  // Freed to the pool, not to the device: that takes a synchronisation.
  EXPECT_EQ(free_at_start_ - 32 * kMiB, free_bytes());
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(free_at_start_, free_bytes());
  EXPECT_EQ(32 * kMiB, get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
  cuuint64_t zero = 0, one = 1;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
  EXPECT_EQ(0u, get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
  FAILS(INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
}

TEST_F(Pools, TheThresholdKeepsMemory) {
  CUdeviceptr p;
  CUmemoryPool pool = default_pool();
  cuuint64_t threshold = UINT64_MAX, none = 0;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  OK(cuMemAllocAsync(&p, 100 * kMiB, nullptr));
  OK(cuMemFreeAsync(p, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(free_at_start_ - 100 * kMiB, free_bytes());
  OK(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
}

TEST_F(Pools, FreedPiecesAreUsedAgain) {
  CUmemoryPool pool = default_pool();
  std::vector<CUdeviceptr> all(16);
  for (CUdeviceptr &p : all) OK(cuMemAllocAsync(&p, kMiB, nullptr));
  EXPECT_EQ(32 * kMiB, get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  for (size_t i = 0; i < all.size(); i += 2) OK(cuMemFreeAsync(all[i], nullptr));
  CUdeviceptr again;
  OK(cuMemAllocAsync(&again, kMiB, nullptr));
  EXPECT_EQ(all[0], again);
  OK(cuMemFree_v2(again));  // the synchronous call takes pool memory too
  for (size_t i = 1; i < all.size(); i += 2) OK(cuMemFreeAsync(all[i], nullptr));
  FAILS(INVALID_VALUE, cuMemFreeAsync(all[1], nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(Pools, CreatedSetAndDestroyed) {
  CUmemPoolProps props = properties();
  CUmemoryPool pool, current;
  CUdeviceptr p;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuDeviceSetMemPool(0, pool));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(pool, current);
  OK(cuMemAllocAsync(&p, kMiB, nullptr));
  EXPECT_EQ(kMiB, get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  // Destroyed with an allocation in it: the pool goes with its last one.
  OK(cuMemPoolDestroy(pool));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(default_pool(), current);
  EXPECT_GT(free_at_start_, free_bytes());
  OK(cuMemFreeAsync(p, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(free_at_start_, free_bytes());
  FAILS(INVALID_VALUE, cuMemPoolDestroy(default_pool()));
}

TEST_F(Pools, MaximumAndExhaustion) {
  CUmemPoolProps props = properties();
  props.maxSize = 64 * kMiB;
  CUmemoryPool pool;
  CUdeviceptr p, q = 5;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemAllocFromPoolAsync(&p, 40 * kMiB, pool, nullptr));
  FAILS(OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&q, 40 * kMiB, pool, nullptr));
  EXPECT_EQ(5u, q);
  OK(cuMemFreeAsync(p, nullptr));
  OK(cuMemPoolDestroy(pool));
  FAILS(OUT_OF_MEMORY, cuMemAllocAsync(&q, free_at_start_ + kBlock, nullptr));
  OK(cuMemAllocAsync(&q, free_at_start_, nullptr));
  OK(cuMemFree_v2(q));
}

TEST_F(Pools, AccessOfOtherDevices) {
  CUmemoryPool pool = default_pool();
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 1;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemAccess_flags flags;
  OK(cuMemPoolGetAccess(&flags, pool, &access.location));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_NONE, flags);
  OK(cuMemPoolSetAccess(pool, &access, 1));
  OK(cuMemPoolGetAccess(&flags, pool, &access.location));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
}

class Vmm : public ContextTest {
 protected:
  CUmemAllocationProp properties_{};
  CUmemAccessDesc access_{};
  void SetUp() override {
    ContextTest::SetUp();
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
};

TEST_F(Vmm, MemoryLivesUntilHandleAndMappingsAreGone) {
  CUmemGenericAllocationHandle handle, again;
  CUdeviceptr p;
  OK(cuMemAddressReserve(&p, 16 * kMiB, 0, 0, 0));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuMemCreate(&handle, 4 * kMiB, &properties_, 0));
  EXPECT_EQ(free_at_start_ - 4 * kMiB, free_bytes());
  OK(cuMemMap(p + 2 * kMiB, 4 * kMiB, 0, handle, 0));
  EXPECT_EQ(free_at_start_ - 4 * kMiB, free_bytes());
  FAILS(INVALID_VALUE, cuMemcpyHtoD_v2(p + 2 * kMiB, "x", 1));  // no access yet
  OK(cuMemSetAccess(p + 2 * kMiB, 4 * kMiB, &access_, 1));
  OK(cuMemcpyHtoD_v2(p + 4 * kMiB - 1, "xy", 2));
  char back[2];
  OK(cuMemcpyDtoH_v2(back, p + 4 * kMiB - 1, 2));
  EXPECT_EQ('y', back[1]);
  OK(cuMemRelease(handle));
  EXPECT_EQ(free_at_start_ - 4 * kMiB, free_bytes());
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void *>(p + 3 * kMiB)));
  EXPECT_EQ(handle, again);
  FAILS(INVALID_VALUE, cuMemUnmap(p + 2 * kMiB, 2 * kMiB));  // only whole mappings
  FAILS(INVALID_VALUE, cuMemAddressFree(p, 16 * kMiB));
  OK(cuMemUnmap(p + 2 * kMiB, 4 * kMiB));
  EXPECT_EQ(free_at_start_ - 4 * kMiB, free_bytes());
  OK(cuMemRelease(again));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuMemAddressFree(p, 16 * kMiB));
}

TEST_F(Vmm, OneHandleTwoMappings) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr p;
  OK(cuMemAddressReserve(&p, 8 * kMiB, 0, 0, 0));
  OK(cuMemCreate(&handle, 4 * kMiB, &properties_, 0));
  OK(cuMemMap(p, 4 * kMiB, 0, handle, 0));
  OK(cuMemMap(p + 4 * kMiB, 4 * kMiB, 0, handle, 0));
  FAILS(INVALID_VALUE, cuMemMap(p, 4 * kMiB, 0, handle, 0));
  OK(cuMemSetAccess(p, 8 * kMiB, &access_, 1));
  OK(cuMemRelease(handle));
  OK(cuMemsetD8_v2(p + 3 * kMiB, 0x77, 10));
  char byte;
  OK(cuMemcpyDtoH_v2(&byte, p + 7 * kMiB, 1));
  EXPECT_EQ(0x77, byte);
  OK(cuMemUnmap(p, 4 * kMiB));
  EXPECT_EQ(free_at_start_ - 4 * kMiB, free_bytes());
  OK(cuMemUnmap(p + 4 * kMiB, 4 * kMiB));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuMemAddressFree(p, 8 * kMiB));
}

TEST_F(Vmm, RulesAndExhaustion) {
  CUmemGenericAllocationHandle handle = 77;
  size_t granularity;
  OK(cuMemGetAllocationGranularity(&granularity, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(kBlock, granularity);
  FAILS(INVALID_VALUE, cuMemCreate(&handle, kBlock + 1, &properties_, 0));
  FAILS(OUT_OF_MEMORY, cuMemCreate(&handle, free_at_start_ + kBlock, &properties_, 0));
  EXPECT_EQ(77u, handle);
  properties_.location.id = 9;
  FAILS(INVALID_DEVICE, cuMemCreate(&handle, kBlock, &properties_, 0));
  properties_.location.id = 1;
  OK(cuMemCreate(&handle, kBlock, &properties_, 0));
  EXPECT_EQ(kBlock, held_bytes(1, getpid()));
  CUmemAllocationProp back;
  OK(cuMemGetAllocationPropertiesFromHandle(&back, handle));
  EXPECT_EQ(1, back.location.id);
  OK(cuMemRelease(handle));
  EXPECT_EQ(0u, held_bytes(1, getpid()));
}

TEST_F(Vmm, HostMemoryIsNotTheDevices) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr p;
  properties_.location.type = CU_MEM_LOCATION_TYPE_HOST;
  OK(cuMemCreate(&handle, kBlock, &properties_, 0));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuMemAddressReserve(&p, kBlock, 0, 0, 0));
  OK(cuMemMap(p, kBlock, 0, handle, 0));
  access_.location.type = CU_MEM_LOCATION_TYPE_HOST;
  OK(cuMemSetAccess(p, kBlock, &access_, 1));
  *reinterpret_cast<char *>(p) = 5;
  char byte = 0;
  OK(cuMemcpyDtoH_v2(&byte, p, 1));
  EXPECT_EQ(5, byte);
  OK(cuMemUnmap(p, kBlock));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(p, kBlock));
}

}  // namespace
