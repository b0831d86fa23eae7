// Stream-ordered pools, virtual memory management and the memory of graphs.
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
  cuuint64_t zero = 0, one = 1;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
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

class GraphMemory : public ContextTest {
 protected:
  // Adds an allocation node after `need`, which may be null.
  static CUresult add_alloc(CUgraph graph, CUgraphNode need, size_t bytes, CUgraphNode *node, CUdeviceptr *address) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = bytes;
    CUresult result = cuGraphAddMemAllocNode(node, graph, &need, need != nullptr ? 1 : 0, &params);
    *address = params.dptr;
    return result;
  }
  void finish(CUgraph graph, CUgraphExec exec) {
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(0));
    EXPECT_EQ(free_at_start_, free_bytes());
  }
};

TEST_F(GraphMemory, ARefusedLaunchKeepsNothing) {
  CUgraph graph;
  CUgraphNode first, second;
  CUgraphExec exec;
  CUdeviceptr a, b, other;
  OK(cuGraphCreate(&graph, 0));
  OK(add_alloc(graph, nullptr, 100 * kMiB, &first, &a));
  OK(add_alloc(graph, first, 100 * kMiB, &second, &b));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuMemAlloc_v2(&other, free_at_start_ - 150 * kMiB));
  size_t left = free_bytes();
  FAILS(OUT_OF_MEMORY, cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(left, free_bytes());
  FAILS(OUT_OF_MEMORY, cuGraphLaunch(exec, nullptr));
  OK(cuMemFree_v2(other));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  finish(graph, exec);
}

TEST_F(GraphMemory, WhatAGraphFreesServesItsLaterNodes) {
  CUgraph graph;
  CUgraphNode first, freed, second;
  CUgraphExec exec;
  CUdeviceptr a, b;
  size_t most = free_at_start_ / kBlock * 2 / 3 * kBlock;
  OK(cuGraphCreate(&graph, 0));
  OK(add_alloc(graph, nullptr, most, &first, &a));
  OK(cuGraphAddMemFreeNode(&freed, graph, &first, 1, a));
  OK(add_alloc(graph, freed, most, &second, &b));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(free_at_start_ - most, free_bytes());
  OK(cuMemFree_v2(b));
  finish(graph, exec);
}

TEST_F(GraphMemory, AQueuedFreeCountsForTheNextLaunch) {
  CUgraph graph;
  CUgraphNode allocated, host, freed;
  CUgraphExec exec;
  CUdeviceptr p;
  CUDA_HOST_NODE_PARAMS pause{[](void *) { usleep(30000); }, nullptr};
  OK(cuGraphCreate(&graph, 0));
  OK(add_alloc(graph, nullptr, 10 * kMiB, &allocated, &p));
  OK(cuGraphAddHostNode(&host, graph, &allocated, 1, &pause));
  OK(cuGraphAddMemFreeNode(&freed, graph, &host, 1, p));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuGraphLaunch(exec, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuStreamDestroy_v2(stream));
  finish(graph, exec);
}

TEST_F(GraphMemory, SizesAndAddressesAreChecked) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  CUdeviceptr p;
  OK(cuGraphCreate(&graph, 0));
  FAILS(OUT_OF_MEMORY, add_alloc(graph, nullptr, SIZE_MAX, &node, &p));
  FAILS(OUT_OF_MEMORY, add_alloc(graph, nullptr, kDeviceBytes + 1, &node, &p));
  OK(add_alloc(graph, nullptr, 4 * kMiB, &node, &p));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  FAILS(INVALID_VALUE, cuMemFree_v2(p + kBlock));
  FAILS(INVALID_VALUE, cuMemFreeAsync(p + 512, nullptr));
  OK(cuMemFree_v2(p));
  finish(graph, exec);
}

TEST_F(GraphMemory, AnAllocationOutlivesItsGraph) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  CUdeviceptr p;
  OK(cuGraphCreate(&graph, 0));
  OK(add_alloc(graph, nullptr, 4 * kMiB, &node, &p));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(free_at_start_ - 4 * kMiB, free_bytes());
  OK(cuMemsetD8_v2(p, 1, 4 * kMiB));
  OK(cuMemFree_v2(p));
  FAILS(INVALID_VALUE, cuMemFree_v2(p));
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(free_at_start_, free_bytes());
}

}  // namespace
