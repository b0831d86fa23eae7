// Contexts, primary contexts and modules: what they cost and what goes with them.
#include <unistd.h>

#include <thread>

#include "support.h"

namespace {

const char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
// comment with .global .b8 not_a_variable[8];
.global .align 8 .b8 table[1000];
.visible .global .align 4 .u32 counter = 7;
.global .align 4 .f32 pair[2] = {0f3F800000, 0f40000000};
.const .align 4 .b32 fixed[3] = {1, -2, 0x3};
.extern .global .align 4 .u32 elsewhere;
.global .attribute(.managed) .align 4 .u32 shared_by_both = 5;
.visible .func (.param .b32 r) helper(.param .b32 x)
{
  ret;
}
.visible .entry simple(
  .param .u64 simple_param_0,
  .param .u32 simple_param_1,
  .param .align 8 .b8 simple_param_2[24]
)
.maxntid 256, 1, 1
{
  .shared .align 4 .b8 tile[2048];
  { .reg .b32 %r<3>; }
  ret;
}
.visible .entry second()
{
  ret;
}
)";

class Contexts : public testing::Test {
 protected:
  void SetUp() override { OK(cuInit(0)); }
  void TearDown() override { EXPECT_EQ(0u, held_bytes(0, getpid()) + held_bytes(1, getpid())); }
};

TEST_F(Contexts, DestroyFreesWhatTheContextOwns) {
  CUcontext context;
  CUdeviceptr small, large, managed;
  CUmodule module;
  CUstream stream;
  CUarray array;
  OK(cuCtxCreate_v2(&context, 0, 0));
  OK(cuMemAlloc_v2(&small, 100));
  OK(cuMemAlloc_v2(&large, 100 * kMiB));
  OK(cuMemAllocManaged(&managed, 4 * kMiB, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemPrefetchAsync(managed, 4 * kMiB, 0, nullptr));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuStreamCreate(&stream, 0));
  CUDA_ARRAY_DESCRIPTOR flat{64, 64, CU_AD_FORMAT_FLOAT, 1};
  OK(cuArrayCreate_v2(&array, &flat));
  OK(cuCtxDestroy_v2(context));
  EXPECT_EQ(0u, held_bytes(0, getpid()));
  CUcontext current;
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(nullptr, current);
  FAILS(CONTEXT_IS_DESTROYED, cuCtxSetCurrent(context));
  FAILS(CONTEXT_IS_DESTROYED, cuCtxDestroy_v2(context));
}

TEST_F(Contexts, EveryCreateVersion) {
  CUcontext context;
  unsigned version;
  OK(cuCtxCreate(&context, 0, 1));
  OK(cuCtxDestroy(context));
  OK(cuCtxCreate_v3(&context, nullptr, 0, 0, 1));
  OK(cuCtxGetApiVersion(context, &version));
  EXPECT_EQ(3020u, version);
  OK(cuCtxDestroy_v2(context));
  OK(cuCtxCreate_v4(&context, nullptr, 0, 1));
  EXPECT_EQ(kContextBytes, held_bytes(1, getpid()));
  OK(cuCtxDestroy_v2(context));
  FAILS(INVALID_DEVICE, cuCtxCreate_v2(&context, 0, 2));
  FAILS(INVALID_DEVICE, cuCtxCreate_v2(&context, 0, -1));
}

TEST_F(Contexts, NoRoomForAContext) {
  CUcontext first, second = reinterpret_cast<CUcontext>(1);
  CUdeviceptr p;
  OK(cuCtxCreate_v2(&first, 0, 0));
  OK(cuMemAlloc_v2(&p, free_bytes() - kContextBytes / 2));
  FAILS(OUT_OF_MEMORY, cuCtxCreate_v2(&second, 0, 0));
  EXPECT_EQ(reinterpret_cast<CUcontext>(1), second);
  OK(cuCtxCreate_v2(&second, 0, 1));
  OK(cuCtxDestroy_v2(second));
  OK(cuCtxDestroy_v2(first));
}

TEST_F(Contexts, PrimaryIsCounted) {
  CUcontext one, two;
  unsigned flags;
  int active;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(0, active);
  FAILS(INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxRetain(&one, 0));
  OK(cuDevicePrimaryCtxRetain(&two, 0));
  EXPECT_EQ(one, two);
  EXPECT_EQ(kContextBytes, held_bytes(0, getpid()));
  FAILS(INVALID_CONTEXT, cuCtxDestroy_v2(one));
  FAILS(PRIMARY_CONTEXT_ACTIVE, cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN));
  OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_SPIN));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_EQ(kContextBytes, held_bytes(0, getpid()));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(1, active);
  EXPECT_EQ(static_cast<unsigned>(CU_CTX_SCHED_SPIN), flags);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_EQ(0u, held_bytes(0, getpid()));
}

TEST_F(Contexts, ResetDropsEverything) {
  CUcontext context;
  CUdeviceptr p;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc_v2(&p, 100 * kMiB));
  OK(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_EQ(0u, held_bytes(0, getpid()));
  FAILS(CONTEXT_IS_DESTROYED, cuMemFree_v2(p));
  OK(cuCtxSetCurrent(nullptr));
  // A reset is not a release: both references are still there.
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  EXPECT_EQ(kContextBytes, held_bytes(0, getpid()));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_EQ(kContextBytes, held_bytes(0, getpid()));
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  FAILS(INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
}

TEST_F(Contexts, OpenedHandlesGoWithTheContext) {
  Client owner;
  owner.must("init");
  owner.must("ctx 0");
  std::string address = owner.must("alloc " + std::to_string(8 * kMiB));
  std::string text = owner.must("ipcget " + address);
  CUipcMemHandle handle{};
  for (size_t i = 0; i < sizeof handle; i++)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  CUcontext context;
  CUdeviceptr p, again;
  OK(cuCtxCreate_v2(&context, 0, 0));
  OK(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  OK(cuCtxDestroy_v2(context));
  // Nobody but its maker holds it now: it goes with him.
  owner.must("free " + address);
  EXPECT_EQ(kContextBytes, held_bytes(0));
  owner.kill_now();
  EXPECT_TRUE(eventually([] { return held_bytes(0) == 0; }));
  OK(cuCtxCreate_v2(&context, 0, 0));
  FAILS(MAP_FAILED, cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  FAILS(INVALID_VALUE, cuIpcCloseMemHandle(p));
  OK(cuCtxDestroy_v2(context));
}

TEST_F(Contexts, TheStackBelongsToTheThread) {
  CUcontext a, b, current;
  OK(cuCtxCreate_v2(&a, 0, 0));
  OK(cuCtxCreate_v2(&b, 0, 1));
  CUdevice device;
  OK(cuCtxGetDevice(&device));
  EXPECT_EQ(1, device);
  OK(cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(b, current);
  OK(cuCtxGetDevice(&device));
  EXPECT_EQ(0, device);
  std::thread([&] {
    CUcontext other;
    EXPECT_EQ(CUDA_SUCCESS, cuCtxGetCurrent(&other));
    EXPECT_EQ(nullptr, other);
    EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(b));
    CUdeviceptr p;
    EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc_v2(&p, kMiB));
  }).join();
  EXPECT_EQ(kContextBytes + kBlock, held_bytes(1, getpid()));
  OK(cuCtxDestroy_v2(b));
  OK(cuCtxDestroy_v2(a));
}

TEST_F(Contexts, ModulesCostMemoryAndTellSizesExactly) {
  CUcontext context;
  CUmodule module;
  CUdeviceptr p;
  size_t size;
  OK(cuCtxCreate_v2(&context, 0, 0));
  size_t before = free_bytes();
  OK(cuModuleLoadData(&module, kPtx));
  EXPECT_LT(free_bytes(), before);
  OK(cuModuleGetGlobal_v2(&p, &size, module, "table"));
  EXPECT_EQ(1000u, size);
  unsigned value = 0;
  OK(cuModuleGetGlobal_v2(&p, &size, module, "counter"));
  EXPECT_EQ(4u, size);
  OK(cuMemcpyDtoH_v2(&value, p, 4));
  EXPECT_EQ(7u, value);
  float pair[2];
  OK(cuModuleGetGlobal_v2(&p, &size, module, "pair"));
  OK(cuMemcpyDtoH_v2(pair, p, 8));
  EXPECT_EQ(1.0f, pair[0]);
  EXPECT_EQ(2.0f, pair[1]);
  int fixed[3];
  OK(cuModuleGetGlobal_v2(&p, &size, module, "fixed"));
  EXPECT_EQ(12u, size);
  OK(cuMemcpyDtoH_v2(fixed, p, 12));
  EXPECT_EQ(-2, fixed[1]);
  OK(cuModuleGetGlobal_v2(&p, &size, module, "shared_by_both"));
  EXPECT_EQ(5u, *reinterpret_cast<unsigned *>(p));
  FAILS(NOT_FOUND, cuModuleGetGlobal_v2(&p, &size, module, "not_a_variable"));
  FAILS(NOT_FOUND, cuModuleGetGlobal_v2(&p, &size, module, "elsewhere"));
  CUfunction function;
  OK(cuModuleGetFunction(&function, module, "simple"));
  FAILS(NOT_FOUND, cuModuleGetFunction(&function, module, "helper"));
  size_t offset;
  OK(cuFuncGetParamInfo(function, 2, &offset, &size));
  EXPECT_EQ(16u, offset);
  EXPECT_EQ(24u, size);
  FAILS(INVALID_VALUE, cuFuncGetParamInfo(function, 3, &offset, &size));
  int shared;
  OK(cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
  EXPECT_EQ(2048, shared);
  OK(cuModuleUnload(module));
  EXPECT_EQ(before, free_bytes());
  FAILS(INVALID_IMAGE, cuModuleLoadData(&module, "this is not an image, not even a short one"));
  OK(cuCtxDestroy_v2(context));
}

TEST_F(Contexts, LinkedImagesKeepTheirKernels) {
  CUcontext context;
  CUlinkState link;
  CUmodule module;
  CUfunction function;
  void *cubin;
  size_t size;
  OK(cuCtxCreate_v2(&context, 0, 0));
  OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char *>(kPtx), sizeof kPtx, "one", 0, nullptr, nullptr));
  FAILS(INVALID_PTX,
        cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char *>("nonsense"), 8, "two", 0, nullptr, nullptr));
  OK(cuLinkComplete(link, &cubin, &size));
  OK(cuModuleLoadData(&module, cubin));
  OK(cuLinkDestroy(link));
  OK(cuModuleGetFunction(&function, module, "second"));
  OK(cuCtxDestroy_v2(context));
}

TEST_F(Contexts, LibrariesLoadWhereTheyAreUsed) {
  CUcontext context;
  CUlibrary library;
  CUkernel kernel;
  OK(cuCtxCreate_v2(&context, 0, 0));
  size_t before = free_bytes();
  OK(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&kernel, library, "simple"));
  EXPECT_EQ(before, free_bytes());
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT_LT(free_bytes(), before);
  OK(cuLibraryUnload(library));
  EXPECT_EQ(before, free_bytes());
  OK(cuCtxDestroy_v2(context));
}

TEST_F(Contexts, ManyThreadsAllocateAtOnce) {
  CUcontext context;
  OK(cuCtxCreate_v2(&context, 0, 0));
  size_t before = free_bytes();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; t++)
    threads.emplace_back([context, t] {
      cuCtxSetCurrent(context);
      std::vector<CUdeviceptr> mine;
      for (unsigned i = 0; i < 2000; i++) {
        CUdeviceptr p;
        if (cuMemAlloc_v2(&p, 1 + (i * 7919 + t * 31) % (3 * kMiB)) == CUDA_SUCCESS) mine.push_back(p);
        if (mine.size() > 20) {
          EXPECT_EQ(CUDA_SUCCESS, cuMemFree_v2(mine[i % 20]));
          mine.erase(mine.begin() + i % 20);
        }
      }
      for (CUdeviceptr p : mine) EXPECT_EQ(CUDA_SUCCESS, cuMemFree_v2(p));
    });
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(before, free_bytes());
  OK(cuCtxDestroy_v2(context));
}

}  // namespace
