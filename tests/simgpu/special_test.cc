// Memory in unusual clothes: green contexts, multicast objects, arrays that are mapped later, other interfaces' memory,
// user objects, and graphs within graphs.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "support.h"

namespace {

CUmemGenericAllocationHandle create(size_t bytes, int device = 0) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(CUDA_SUCCESS, cuMemCreate(&handle, bytes, &properties, 0));
  return handle;
}

// ---- green contexts ----

class Green : public testing::Test {
 protected:
  void SetUp() override { OK(cuInit(0)); }
  void TearDown() override { EXPECT_EQ(0u, held_bytes(0, getpid())) << "memory left behind"; }
  static constexpr size_t kGreen = 4 * kMiB;

  static CUdevResource all_sms(CUdevice device = 0) {
    CUdevResource all{};
    EXPECT_EQ(CUDA_SUCCESS, cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    return all;
  }
  static CUgreenCtx make() {
    CUdevResource all = all_sms(), part{};
    CUdevResourceDesc description = nullptr;
    CUgreenCtx green = nullptr;
    unsigned groups = 1;
    EXPECT_EQ(CUDA_SUCCESS, cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 8));
    EXPECT_EQ(CUDA_SUCCESS, cuDevResourceGenerateDesc(&description, &part, 1));
    EXPECT_EQ(CUDA_SUCCESS, cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
  }
};

TEST_F(Green, SmsAreSplitIntoGroups) {
  const CUdevResource all = all_sms();
  EXPECT_EQ(80u, all.sm.smCount);
  CUdevResource parts[16], rest{};
  unsigned groups = 3;
  OK(cuDevSmResourceSplitByCount(parts, &groups, &all, &rest, 0, 9));
  EXPECT_EQ(3u, groups);
  EXPECT_EQ(10u, parts[2].sm.smCount);  // rounded up
  EXPECT_EQ(50u, rest.sm.smCount);
  groups = 0;
  OK(cuDevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, 0, 9));
  EXPECT_EQ(8u, groups) << "how many there could be";
  FAILS(INVALID_RESOURCE_CONFIGURATION, cuDevSmResourceSplitByCount(parts, &groups, &all, nullptr, 0, 81));
  FAILS(INVALID_VALUE, cuDevSmResourceSplitByCount(parts, nullptr, &all, nullptr, 0, 8));
}

TEST_F(Green, BringsAndKeepsThePrimaryContext) {
  unsigned flags = 0;
  int active = 1;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(0, active);
  CUgreenCtx green = make();
  EXPECT_EQ(kContextBytes + kGreen, held_bytes(0, getpid()));
  CUcontext primary = nullptr;
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  EXPECT_EQ(kContextBytes + kGreen, held_bytes(0, getpid()));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(1, active);
  OK(cuGreenCtxDestroy(green));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(0, active);
}

TEST_F(Green, CallsInItAreCallsInThePrimaryContext) {
  CUcontext primary = nullptr, face = nullptr, current = nullptr;
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  CUgreenCtx green = make();
  OK(cuCtxFromGreenCtx(&face, green));
  OK(cuCtxSetCurrent(face));
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(face, current);
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, kBlock));
  CUdevResource own{};
  OK(cuCtxGetDevResource(face, &own, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(8u, own.sm.smCount);
  CUstream stream;
  OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  OK(cuMemsetD8Async(p, 7, kBlock, stream));
  OK(cuStreamSynchronize(stream));
  unsigned char byte = 0;
  OK(cuMemcpyDtoH_v2(&byte, p + 5, 1));
  EXPECT_EQ(7, byte);
  OK(cuStreamDestroy_v2(stream));
  OK(cuGreenCtxDestroy(green));
  FAILS(CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&p, kBlock));
  FAILS(INVALID_CONTEXT, cuGreenCtxDestroy(nullptr));
  OK(cuCtxSetCurrent(primary));
  OK(cuMemFree_v2(p));  // it stayed
  OK(cuCtxSetCurrent(nullptr));
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

// ---- multicast ----

class Multicast : public ContextTest {};

TEST_F(Multicast, HoldsWhatIsBoundToIt) {
  CUmulticastObjectProp properties{};
  properties.numDevices = 2;
  properties.size = 2 * kBlock;
  size_t granularity = 0;
  OK(cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM));
  EXPECT_EQ(kBlock, granularity);
  CUmemGenericAllocationHandle object;
  OK(cuMulticastCreate(&object, &properties));
  EXPECT_EQ(free_at_start_, free_bytes()) << "no memory by itself";
  CUmemGenericAllocationHandle memory = create(2 * kBlock);
  OK(cuMulticastAddDevice(object, 0));
  FAILS(ILLEGAL_STATE, cuMulticastBindMem(object, 0, memory, 0, kBlock, 0)) << "not before all devices are there";
  FAILS(INVALID_VALUE, cuMulticastAddDevice(object, 0));
  OK(cuMulticastAddDevice(object, 1));
  OK(cuMulticastBindMem(object, 0, memory, 0, kBlock, 0));
  FAILS(INVALID_VALUE, cuMulticastBindMem(object, 0, memory, kBlock, kBlock, 0)) << "taken";
  CUdeviceptr address;
  OK(cuMemAddressReserve(&address, 2 * kBlock, 0, 0, 0));
  OK(cuMemMap(address, 2 * kBlock, 0, object, 0));
  OK(cuMemRelease(memory));
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes()) << "bound";
  OK(cuMulticastUnbind(object, 0, 0, kBlock));
  EXPECT_EQ(free_at_start_, free_bytes());
  FAILS(INVALID_VALUE, cuMulticastUnbind(object, 0, 0, kBlock));

  CUmemGenericAllocationHandle again = create(kBlock);
  CUdeviceptr place;
  OK(cuMemAddressReserve(&place, kBlock, 0, 0, 0));
  OK(cuMemMap(place, kBlock, 0, again, 0));
  OK(cuMulticastBindAddr(object, kBlock, place, kBlock, 0));
  OK(cuMemUnmap(place, kBlock));
  OK(cuMemRelease(again));
  EXPECT_EQ(free_at_start_ - kBlock, free_bytes());
  OK(cuMemRelease(object));
  EXPECT_EQ(free_at_start_ - kBlock, free_bytes()) << "the object is mapped";
  OK(cuMemUnmap(address, 2 * kBlock));
  EXPECT_EQ(free_at_start_, free_bytes()) << "what was bound goes with it";
  OK(cuMemAddressFree(address, 2 * kBlock));
  OK(cuMemAddressFree(place, kBlock));
}

// ---- arrays that are mapped later ----

class BareArrays : public ContextTest {
 protected:
  static CUarray make(unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = 512;
    description.Height = kBlock / 2048;
    description.Format = CU_AD_FORMAT_FLOAT;
    description.NumChannels = 1;
    description.Flags = flags;
    CUarray array = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuArray3DCreate_v2(&array, &description));
    return array;
  }
  static CUarrayMapInfo operation(CUarray array, CUmemGenericAllocationHandle memory, unsigned x = 0) {
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = array;
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel.offsetX = x;
    info.memOperationType = memory != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = memory;
    info.deviceBitMask = 1;
    return info;
  }
};

TEST_F(BareArrays, TakeMemoryWhenTheyAreMapped) {
  for (unsigned flags : {CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING}) {
    CUarray array = make(flags);
    EXPECT_EQ(free_at_start_, free_bytes());
    CUmemGenericAllocationHandle first = create(kBlock), second = create(2 * kBlock);
    CUarrayMapInfo both[] = {operation(array, first), operation(array, second, 64)};
    OK(cuMemMapArrayAsync(both, 2, nullptr));
    OK(cuMemRelease(first));
    OK(cuMemRelease(second));
    EXPECT_EQ(free_at_start_ - 3 * kBlock, free_bytes());
    CUarrayMapInfo away = operation(array, 0, 64);
    OK(cuMemMapArrayAsync_ptsz(&away, 1, nullptr));
    OK(cuCtxSynchronize());
    EXPECT_EQ(free_at_start_ - kBlock, free_bytes());
    OK(cuArrayDestroy(array));
    EXPECT_EQ(free_at_start_, free_bytes());
  }
}

TEST_F(BareArrays, OnlyTheseCanBeMapped) {
  CUarray solid = make(0);
  CUmemGenericAllocationHandle memory = create(kBlock);
  CUarrayMapInfo wrong = operation(solid, memory);
  FAILS(INVALID_VALUE, cuMemMapArrayAsync(&wrong, 1, nullptr));
  CUarray bare = make(CUDA_ARRAY3D_SPARSE);
  CUarrayMapInfo nothing = operation(bare, memory);
  nothing.offset = kBlock;
  FAILS(INVALID_VALUE, cuMemMapArrayAsync(&nothing, 1, nullptr));
  char byte = 0;
  FAILS(NOT_SUPPORTED, cuMemcpyHtoA_v2(bare, 0, &byte, 1)) << "its texels are nowhere";
  OK(cuArrayDestroy(solid));
  OK(cuArrayDestroy(bare));
  OK(cuMemRelease(memory));
}

TEST_F(BareArrays, GoWithTheirContext) {
  CUcontext other;
  OK(cuCtxCreate_v2(&other, 0, 0));
  CUarray array = make(CUDA_ARRAY3D_SPARSE);
  CUmemGenericAllocationHandle memory = create(kBlock);
  CUarrayMapInfo map = operation(array, memory);
  OK(cuMemMapArrayAsync(&map, 1, nullptr));
  OK(cuMemRelease(memory));
  OK(cuCtxDestroy_v2(other));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuArrayDestroy(array));
}

// ---- memory of other interfaces ----

class External : public ContextTest {
 protected:
  static CUresult import(int fd, size_t bytes, CUexternalMemory *memory) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
    description.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    description.handle.fd = fd;
    description.size = bytes;
    return cuImportExternalMemory(memory, &description);
  }
  static CUdeviceptr buffer(CUexternalMemory memory, size_t offset, size_t bytes) {
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC description{};
    description.offset = offset;
    description.size = bytes;
    CUdeviceptr p = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuExternalMemoryGetMappedBuffer(&p, memory, &description));
    return p;
  }
};

TEST_F(External, ExportedMemoryIsCountedOnce) {
  CUmemGenericAllocationHandle handle = create(2 * kBlock);
  int fd = -1;
  OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUexternalMemory memory;
  OK(import(fd, 2 * kBlock, &memory));
  EXPECT_EQ(-1, close(fd)) << "it is the driver's now";
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes());
  OK(cuMemRelease(handle));
  CUdeviceptr p = buffer(memory, kBlock, kBlock);
  OK(cuMemsetD8_v2(p, 3, kBlock));
  OK(cuDestroyExternalMemory(memory));
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes()) << "a buffer is left";
  FAILS(INVALID_VALUE, cuMemFree_v2(p + 512));
  OK(cuMemFree_v2(p));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(External, AMemfdStandsForMemoryOfThisProcess) {
  int fd = memfd_create("external", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(0, ftruncate(fd, kBlock));
  CUexternalMemory memory;
  FAILS(INVALID_VALUE, import(fd, 2 * kBlock, &memory));
  OK(import(fd, kBlock, &memory));
  EXPECT_EQ(free_at_start_ - kBlock, free_bytes());
  OK(cuDestroyExternalMemory(memory));
  EXPECT_EQ(free_at_start_, free_bytes());
  FAILS(INVALID_VALUE, import(-1, kBlock, &memory));
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  FAILS(INVALID_VALUE, import(ends[0], kBlock, &memory));
  close(ends[0]);
  close(ends[1]);
}

// ---- user objects ----

std::atomic<int> destroyed{0};
void count_destroyed(void *) { destroyed++; }

TEST_F(External, UserObjectsGoWithTheLastThatHoldsThem) {
  destroyed = 0;
  CUuserObject object;
  CUgraph graph;
  CUgraphExec exec;
  OK(cuUserObjectCreate(&object, nullptr, count_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuUserObjectRetain(object, 2));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphRetainUserObject(graph, object, 1, 0));
  OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  OK(cuUserObjectRelease(object, 2));
  OK(cuGraphReleaseUserObject(graph, object, 1));
  FAILS(INVALID_VALUE, cuGraphReleaseUserObject(graph, object, 2));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  usleep(20000);
  EXPECT_EQ(0, destroyed.load()) << "the instance holds it";
  OK(cuGraphExecDestroy(exec));
  EXPECT_TRUE(eventually([] { return destroyed.load() == 1; }));
}

// ---- graphs in graphs ----

class Graphs : public ContextTest {
 protected:
  static CUdeviceptr add(CUgraph graph, size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = bytes;
    CUgraphNode node;
    EXPECT_EQ(CUDA_SUCCESS, cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    return params.dptr;
  }
};

TEST_F(Graphs, AMovedChildBringsItsAllocations) {
  CUgraph outer, inner, seen;
  CUgraphNode node;
  CUgraphExec exec;
  OK(cuGraphCreate(&outer, 0));
  OK(cuGraphCreate(&inner, 0));
  CUdeviceptr p = add(inner, 3 * kBlock);
  FAILS(NOT_SUPPORTED, cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner)) << "a copy may not";
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = inner;
  params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  OK(cuGraphAddNode(&node, outer, nullptr, 0, &params));
  OK(cuGraphChildGraphNodeGetGraph(node, &seen));
  EXPECT_EQ(inner, seen);
  OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(free_at_start_ - 3 * kBlock, free_bytes());
  FAILS(INVALID_VALUE, cuGraphLaunch(exec, nullptr)) << "not freed yet";
  OK(cuMemFree_v2(p));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(outer));
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(Graphs, AnUploadTakesTheMemory) {
  CUgraph graph;
  CUgraphExec exec;
  OK(cuGraphCreate(&graph, 0));
  CUdeviceptr p = add(graph, 2 * kBlock);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphUpload(exec, nullptr));
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes());
  OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes());
  OK(cuGraphUpload(exec, nullptr));
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes());
  OK(cuMemFree_v2(p));
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

int calls_of[2];
void call_first(void *) { calls_of[0]++; }
void call_second(void *) { calls_of[1]++; }

TEST_F(Graphs, NewParametersForOldNodes) {
  calls_of[0] = calls_of[1] = 0;
  CUgraph graph, child;
  CUgraphNode node, inner;
  CUgraphExec exec;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_HOST;
  params.host.fn = call_first;
  OK(cuGraphCreate(&child, 0));
  OK(cuGraphAddNode(&inner, child, nullptr, 0, &params));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  params.host.fn = call_second;
  OK(cuGraphNodeSetParams(inner, &params));
  OK(cuGraphLaunch(exec, nullptr));  // an instance does not follow its graph
  OK(cuGraphExecChildGraphNodeSetParams(exec, node, child));
  OK(cuGraphLaunch(exec, nullptr));
  CUgraphNodeParams again{};
  again.type = CU_GRAPH_NODE_TYPE_GRAPH;
  again.graph.graph = child;
  OK(cuGraphExecNodeSetParams(exec, node, &again));
  again.type = CU_GRAPH_NODE_TYPE_EMPTY;
  FAILS(INVALID_VALUE, cuGraphExecNodeSetParams(exec, node, &again));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(2, calls_of[0]);
  EXPECT_EQ(2, calls_of[1]);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuGraphDestroy(child));
}

}  // namespace
