// Linear, pitched, managed, array and host memory, as the driver API's documentation describes them, and the books.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "support.h"

namespace {

class Memory : public ContextTest {};

TEST_F(Memory, ContextCostsWhatTheDescriptionSays) {
  EXPECT_EQ(kDeviceBytes - kContextBytes, free_at_start_);
  EXPECT_EQ(kContextBytes, held_bytes(0, getpid()));
}

TEST_F(Memory, LargeAllocationsTakeWholeBlocks) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, kMiB + 1));
  EXPECT_EQ(free_at_start_ - kBlock, free_bytes());
  OK(cuMemFree_v2(p));
  OK(cuMemAlloc_v2(&p, kBlock + 1));
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes());
  OK(cuMemFree_v2(p));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(Memory, SmallAllocationsShareABlock) {
  std::vector<CUdeviceptr> all(4096);
  for (CUdeviceptr &p : all) OK(cuMemAlloc_v2(&p, 512));
  EXPECT_EQ(free_at_start_ - kBlock, free_bytes());
  CUdeviceptr one_more;
  OK(cuMemAlloc_v2(&one_more, 512));
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes());
  for (CUdeviceptr p : all) OK(cuMemFree_v2(p));
  EXPECT_EQ(free_at_start_ - kBlock, free_bytes());
  OK(cuMemFree_v2(one_more));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(Memory, AddressesAreAlignedAndDistinctForEverySize) {
  std::vector<std::pair<CUdeviceptr, size_t>> all;
  for (size_t n = 1; n < 3 * kMiB; n = n * 5 / 4 + 1) {
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, n));
    EXPECT_EQ(0u, p % 512);
    for (auto [q, m] : all) EXPECT_TRUE(p + n <= q || q + m <= p) << n << " overlaps " << m;
    CUdeviceptr base;
    size_t size;
    OK(cuMemGetAddressRange_v2(&base, &size, p + n / 2));
    EXPECT_EQ(p, base);
    EXPECT_EQ(n, size);
    all.emplace_back(p, n);
  }
  for (auto [p, n] : all) OK(cuMemFree_v2(p));
}

TEST_F(Memory, ExhaustionIsOutOfMemoryAndLeavesTheOutputAlone) {
  CUdeviceptr p = 0x1234, all;
  FAILS(OUT_OF_MEMORY, cuMemAlloc_v2(&p, free_at_start_ + 1));
  EXPECT_EQ(0x1234u, p);
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuMemAlloc_v2(&all, free_at_start_));
  EXPECT_EQ(0u, free_bytes());
  FAILS(OUT_OF_MEMORY, cuMemAlloc_v2(&p, 1));
  EXPECT_EQ(0x1234u, p);
  OK(cuMemFree_v2(all));
  OK(cuMemAlloc_v2(&p, 1));
  OK(cuMemFree_v2(p));
}

TEST_F(Memory, WrongArguments) {
  CUdeviceptr p;
  FAILS(INVALID_VALUE, cuMemAlloc_v2(&p, 0));
  FAILS(INVALID_VALUE, cuMemAlloc_v2(nullptr, 1));
  FAILS(INVALID_VALUE, cuMemFree_v2(0x1000));
  OK(cuMemFree_v2(0));
  OK(cuMemAlloc_v2(&p, 4 * kMiB));
  FAILS(INVALID_VALUE, cuMemFree_v2(p + 512));
  OK(cuMemFree_v2(p));
  FAILS(INVALID_VALUE, cuMemFree_v2(p));
  OK(cuMemAlloc_v2(&p, 100));
  FAILS(INVALID_VALUE, cuMemFree_v2(p + 1));
  OK(cuMemFree_v2(p));
  FAILS(INVALID_VALUE, cuMemFree_v2(p));
}

TEST_F(Memory, FiguresThatNobodyAsksForAreLeftOut) {
  size_t free = 0, total = 0;
  OK(cuMemGetInfo_v2(&free, nullptr));
  EXPECT_EQ(free_at_start_, free);
  OK(cuMemGetInfo_v2(nullptr, &total));
  EXPECT_EQ(kDeviceBytes, total);
  OK(cuMemGetInfo_v2(nullptr, nullptr));
  unsigned small = 0;
  OK(cuMemGetInfo(nullptr, &small));
  EXPECT_EQ(kDeviceBytes, small);
  CUdeviceptr p, base = 0;
  OK(cuMemAlloc_v2(&p, 100));
  OK(cuMemGetAddressRange_v2(&base, nullptr, p));
  EXPECT_EQ(p, base);
  OK(cuMemFree_v2(p));
}

// What is wrong with a call is said before what the device lacks.
TEST_F(Memory, ArgumentsAreJudgedBeforeTheDevice) {
  constexpr size_t kHuge = size_t{1} << 50;
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t pitch;
  CUdeviceptr p;
  FAILS(INVALID_VALUE, cuMemAlloc_v2(nullptr, kHuge));
  FAILS(INVALID_VALUE, cuMemAllocManaged(nullptr, kHuge, CU_MEM_ATTACH_GLOBAL));
  FAILS(INVALID_VALUE, cuMemAllocManaged(&p, kHuge, 0));
  FAILS(INVALID_VALUE, cuMemAllocPitch_v2(nullptr, &pitch, kHuge, 1, 4));
  FAILS(INVALID_VALUE, cuMemAllocPitch_v2(&p, nullptr, kHuge, 1, 4));
  FAILS(INVALID_VALUE, cuMemAllocPitch_v2(&p, &pitch, kHuge, 1, 3));
  FAILS(INVALID_VALUE, cuMemAllocAsync(nullptr, kHuge, nullptr));
  FAILS(INVALID_VALUE, cuMemAllocHost_v2(nullptr, kHuge));
  FAILS(INVALID_VALUE, cuMemCreate(nullptr, kHuge, &property, 0));
  CUmemGenericAllocationHandle handle;
  FAILS(INVALID_VALUE, cuMemCreate(&handle, kHuge + 1, &property, 0));
  FAILS(INVALID_VALUE, cuMemCreate(&handle, kHuge, nullptr, 0));
  CUDA_ARRAY_DESCRIPTOR array{131072, 65536, CU_AD_FORMAT_FLOAT, 4};
  FAILS(INVALID_VALUE, cuArrayCreate_v2(nullptr, &array));
  CUdeviceptr all;
  OK(cuMemAlloc_v2(&all, free_bytes()));
  FAILS(INVALID_VALUE, cuCtxCreate_v2(nullptr, 0, 0)) << "a full device";
  FAILS(INVALID_VALUE, cuModuleLoadData(nullptr, "x")) << "a full device";
  OK(cuMemFree_v2(all));
}

TEST_F(Memory, NeedsAContext) {
  OK(cuCtxPopCurrent_v2(nullptr));
  CUdeviceptr p;
  FAILS(INVALID_CONTEXT, cuMemAlloc_v2(&p, 1));
  FAILS(INVALID_CONTEXT, cuMemFree_v2(1));
  OK(cuCtxPushCurrent_v2(context_));
}

TEST_F(Memory, ThirtyTwoBitCallsWorkBelowFourGibibytes) {
  CUdeviceptr_v1 p;
  unsigned pitch, free, total;
  OK(cuMemAlloc(&p, 3 * kMiB));
  EXPECT_EQ(free_at_start_ - 2 * kBlock, free_bytes());
  OK(cuMemsetD8(p, 7, 3 * kMiB));
  char byte = 0;
  OK(cuMemcpyDtoH(&byte, p + 2 * kMiB, 1));
  EXPECT_EQ(7, byte);
  OK(cuMemFree(p));
  OK(cuMemAllocPitch(&p, &pitch, 100, 100, 4));
  EXPECT_EQ(512u, pitch);
  OK(cuMemFree(p));
  OK(cuMemGetInfo(&free, &total));
  EXPECT_EQ(free_at_start_, free);
}

TEST_F(Memory, PitchIsKnownOnlyAfterTheCall) {
  CUdeviceptr p;
  size_t pitch;
  OK(cuMemAllocPitch_v2(&p, &pitch, 1000, 10000, 4));
  EXPECT_EQ(1024u, pitch);
  EXPECT_EQ(free_at_start_ - (1024 * 10000 + kBlock - 1) / kBlock * kBlock, free_bytes());
  OK(cuMemFree_v2(p));
  FAILS(INVALID_VALUE, cuMemAllocPitch_v2(&p, &pitch, 1000, 1000, 3));
}

TEST_F(Memory, CopiesAndFillsArriveAcrossBlockBorders) {
  size_t n = 5 * kMiB;
  CUdeviceptr p, q;
  std::vector<unsigned char> out(n), back(n);
  for (size_t i = 0; i < n; i++) out[i] = static_cast<unsigned char>(i * 31 + i / 4096);
  OK(cuMemAlloc_v2(&p, n));
  OK(cuMemAlloc_v2(&q, n));
  OK(cuMemcpyHtoD_v2(p, out.data(), n));
  OK(cuMemcpyDtoD_v2(q, p, n));
  OK(cuMemcpyDtoH_v2(back.data(), q, n));
  EXPECT_EQ(out, back);
  OK(cuMemsetD32_v2(q + kBlock - 4, 0xa1b2c3d4, 2));
  OK(cuMemcpyDtoH_v2(back.data(), q + kBlock - 4, 8));
  EXPECT_EQ(0, memcmp(back.data(), "\xd4\xc3\xb2\xa1\xd4\xc3\xb2\xa1", 8));
  OK(cuMemsetD8_v2(q, 0, n));
  OK(cuMemcpyDtoH_v2(back.data(), q, n));
  EXPECT_EQ(std::vector<unsigned char>(n), back);
  FAILS(INVALID_VALUE, cuMemcpyHtoD_v2(p + 1, out.data(), n));
  FAILS(INVALID_VALUE, cuMemsetD8_v2(p, 0, n + 1));
  FAILS(INVALID_VALUE, cuMemsetD32_v2(p + 1, 0, 1));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
}

TEST_F(Memory, AFreedBlockIsNotSeenByItsNextOwner) {
  CUdeviceptr p;
  unsigned char byte = 1;
  OK(cuMemAlloc_v2(&p, kBlock));
  OK(cuMemsetD8_v2(p, 0x5a, kBlock));
  OK(cuMemFree_v2(p));
  OK(cuMemAlloc_v2(&p, kBlock));
  OK(cuMemcpyDtoH_v2(&byte, p + 12345, 1));
  EXPECT_EQ(0, byte);
  OK(cuMemFree_v2(p));
}

sigjmp_buf g_fault;
void on_fault(int) { siglongjmp(g_fault, 1); }

TEST_F(Memory, TheHostCannotFollowADevicePointer) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, kBlock));
  struct sigaction action {
  }, old{};
  action.sa_handler = on_fault;
  sigaction(SIGSEGV, &action, &old);
  bool faulted = sigsetjmp(g_fault, 1) != 0;
  if (!faulted) *reinterpret_cast<volatile char *>(p) = 1;
  sigaction(SIGSEGV, &old, nullptr);
  EXPECT_TRUE(faulted);
  OK(cuMemFree_v2(p));
}

TEST_F(Memory, ManagedMemoryTakesTheDeviceOnlyWhileItIsThere) {
  CUdeviceptr p;
  OK(cuMemAllocManaged(&p, 10 * kMiB, CU_MEM_ATTACH_GLOBAL));
  auto *bytes = reinterpret_cast<char *>(p);
  bytes[5 * kMiB] = 42;
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuMemPrefetchAsync(p, 10 * kMiB, 0, nullptr));
  EXPECT_EQ(free_at_start_ - 10 * kMiB, free_bytes());
  EXPECT_EQ(42, bytes[5 * kMiB]);
  OK(cuMemPrefetchAsync(p, 10 * kMiB, CU_DEVICE_CPU, nullptr));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuMemsetD8_v2(p, 3, 10 * kMiB));
  EXPECT_EQ(free_at_start_ - 10 * kMiB, free_bytes());
  EXPECT_EQ(3, bytes[kMiB]);
  OK(cuMemFree_v2(p));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(Memory, ManagedMemoryMakesRoom) {
  CUdeviceptr managed, p;
  OK(cuMemAllocManaged(&managed, free_at_start_ / 2, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemPrefetchAsync(managed, free_at_start_ / 2, 0, nullptr));
  OK(cuMemAlloc_v2(&p, free_at_start_));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(managed));
  // More than the device has: allowed, as it need not all be there.
  OK(cuMemAllocManaged(&managed, 2 * kDeviceBytes, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemPrefetchAsync(managed, 2 * kDeviceBytes, 0, nullptr));
  EXPECT_EQ(0u, free_bytes()) << "as much as fits is there, the rest on the host";
  OK(cuMemAlloc_v2(&p, free_at_start_ / 2));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(managed));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(Memory, ManagedMemoryGivesWayAsFarAsItMust) {
  CUdeviceptr parts[3], large;
  size_t quarter = free_at_start_ / kBlock / 4 * kBlock;
  for (CUdeviceptr &part : parts) {
    OK(cuMemAllocManaged(&part, quarter, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemPrefetchAsync(part, quarter, 0, nullptr));
  }
  OK(cuMemAllocManaged(&large, 2 * quarter, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemPrefetchAsync(large, 2 * quarter, 0, nullptr));
  EXPECT_EQ(free_at_start_ - 4 * quarter, free_bytes());
  for (CUdeviceptr part : parts) OK(cuMemFree_v2(part));
  OK(cuMemFree_v2(large));
}

TEST_F(Memory, ArraysAndMipmaps) {
  CUDA_ARRAY_DESCRIPTOR flat{1000, 700, CU_AD_FORMAT_FLOAT, 4};
  CUarray array;
  OK(cuArrayCreate_v2(&array, &flat));
  size_t row = (16000 + 511) / 512 * 512;
  EXPECT_EQ(free_at_start_ - (row * 700 + kBlock - 1) / kBlock * kBlock, free_bytes());
  std::vector<float> out(4000), back(4000);
  for (size_t i = 0; i < out.size(); i++) out[i] = static_cast<float>(i);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = out.data();
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.dstY = 699;
  copy.WidthInBytes = 16000;
  copy.Height = 1;
  OK(cuMemcpy2D_v2(&copy));
  copy.dstY = 700;
  FAILS(INVALID_VALUE, cuMemcpy2D_v2(&copy));
  CUDA_MEMCPY2D home{};
  home.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  home.srcArray = array;
  home.srcY = 699;
  home.dstMemoryType = CU_MEMORYTYPE_HOST;
  home.dstHost = back.data();
  home.WidthInBytes = 16000;
  home.Height = 1;
  OK(cuMemcpy2D_v2(&home));
  EXPECT_EQ(out, back);
  OK(cuArrayDestroy(array));
  EXPECT_EQ(free_at_start_, free_bytes());

  CUDA_ARRAY3D_DESCRIPTOR deep{1024, 1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
  CUmipmappedArray mipmap;
  OK(cuMipmappedArrayCreate(&mipmap, &deep, 4));
  size_t expected = 4096 * 1024 + 2048 * 512 + 1024 * 256 + 512 * 128;
  EXPECT_EQ(free_at_start_ - (expected + kBlock - 1) / kBlock * kBlock, free_bytes());
  CUarray level;
  OK(cuMipmappedArrayGetLevel(&level, mipmap, 3));
  FAILS(INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 4));
  FAILS(INVALID_HANDLE, cuArrayDestroy(level));
  OK(cuMipmappedArrayDestroy(mipmap));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(Memory, HostMemoryIsNotTheDevices) {
  void *p;
  OK(cuMemHostAlloc(&p, 10 * kMiB, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(p, 1, 10 * kMiB);
  EXPECT_EQ(free_at_start_, free_bytes());
  CUdeviceptr device;
  OK(cuMemHostGetDevicePointer_v2(&device, p, 0));
  OK(cuMemsetD8_v2(device, 9, 100));
  EXPECT_EQ(9, static_cast<char *>(p)[99]);
  unsigned type;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
  EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_HOST), type);
  OK(cuMemFreeHost(p));
  FAILS(INVALID_VALUE, cuMemFreeHost(p));
  std::vector<char> own(8192);
  OK(cuMemHostRegister_v2(own.data(), own.size(), 0));
  FAILS(HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(own.data() + 1, 10, 0));
  OK(cuMemHostUnregister(own.data()));
  FAILS(HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(own.data()));
}

TEST_F(Memory, PointerAttributes) {
  CUdeviceptr p, base;
  size_t size;
  CUcontext owner;
  int ordinal, managed;
  OK(cuMemAlloc_v2(&p, 1000));
  OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p + 10));
  EXPECT_EQ(context_, owner);
  OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
  EXPECT_EQ(0, ordinal);
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
  EXPECT_EQ(0, managed);
  OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 10));
  OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 10));
  EXPECT_EQ(p, base);
  EXPECT_EQ(1000u, size);
  int local = 0;
  FAILS(INVALID_VALUE,
        cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, reinterpret_cast<CUdeviceptr>(&local)));
  OK(cuMemFree_v2(p));
}

TEST_F(Memory, PrivilegedHeapOfTheContext) {
  OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 108 * kMiB));
  EXPECT_EQ(free_at_start_ - 100 * kMiB, free_bytes());
  OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * kMiB));
  EXPECT_EQ(free_at_start_, free_bytes());
  FAILS(OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 2 * kDeviceBytes));
  size_t value;
  OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
  EXPECT_EQ(8 * kMiB, value);
}

}  // namespace
