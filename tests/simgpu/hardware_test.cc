// What a device of the profile `hardware` does that an ideal one does not, under a clock of the test's own, with blocks of
// 4 MiB.
#include <functional>
#include <thread>

#include "timed.h"

const char *node_lines() { return "clock=manual; profile=hardware; block=4MiB"; }

namespace {

constexpr size_t kLargeBlock = 4 * kMiB;
constexpr size_t kFunctionsInBlock = kLargeBlock / (512 << 10);

class Hardware : public TimedTest {
 protected:
  void advance(const char *time) { ctl(std::string("clock advance ") + time); }
  CUfunction function(const std::string &name, const std::string &body = "") {
    std::string ptx =
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry " + name + "()\n{\n" + body + "  ret;\n}\n";
    CUfunction found = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module_, ptx.c_str()));
    EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&found, module_, name.c_str()));
    return found;
  }
  CUresult run(CUfunction function) {
    return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  // Lets pass what has been launched: what is destroyed is waited for.
  void TearDown() override {
    advance("1s");
    TimedTest::TearDown();
  }
  CUmodule module_ = nullptr;
};

TEST_F(Hardware, AKernelReachesTheDeviceLateAndItsEndIsSeenLate) {
  OK(launch("10us"));
  FAILS(NOT_READY, cuStreamQuery(nullptr));
  advance("13us");
  EXPECT_EQ(9000u, busy_ns()) << "4 us on its way";
  advance("1us");
  EXPECT_EQ(10000u, busy_ns());
  FAILS(NOT_READY, cuStreamQuery(nullptr)) << "it has ended, but that is not known here";
  advance("5us");
  FAILS(NOT_READY, cuStreamQuery(nullptr));
  advance("1us");
  OK(cuStreamQuery(nullptr));
}

TEST_F(Hardware, EventsAreSeenLate) {
  CUevent first, last;
  float ms = 0;
  OK(cuEventCreate(&first, 0));
  OK(cuEventCreate(&last, 0));
  OK(cuEventRecord(first, nullptr));
  FAILS(NOT_READY, cuEventQuery(first)) << "although there is nothing before it";
  advance("6us");
  OK(cuEventQuery(first));
  OK(launch("10us"));
  OK(cuEventRecord(last, nullptr));
  advance("14us");
  FAILS(NOT_READY, cuEventQuery(last));
  FAILS(NOT_READY, cuEventElapsedTime(&ms, first, last));
  advance("6us");
  OK(cuEventSynchronize(last));
  OK(cuEventElapsedTime(&ms, first, last));
  EXPECT_FLOAT_EQ(0.02f, ms) << "their times are those of the device";
  OK(cuEventDestroy_v2(first));
  OK(cuEventDestroy_v2(last));
}

class Concurrency : public Hardware {
 protected:
  void SetUp() override {
    Hardware::SetUp();
    for (CUstream &stream : streams_) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (const char *time : {"10us", "30us"}) OK(cuFuncLoad(kernel(time)));
  }
  void TearDown() override {
    advance("1s");
    for (CUstream stream : streams_) OK(cuStreamDestroy_v2(stream));
    Hardware::TearDown();
  }
  // How long the device has been busy since the test began.
  uint64_t ran_ns() { return busy_ns() - busy_before_; }

  CUstream streams_[2] = {};

 private:
  const uint64_t busy_before_ = busy_ns();
};

TEST_F(Concurrency, SmallKernelsOfTwoStreamsRunBesideEachOther) {
  OK(launch("10us", streams_[0]));
  OK(launch("10us", streams_[1]));
  advance("14us");
  EXPECT_EQ(10000u, ran_ns()) << "both have ended";
  advance("6us");
  OK(cuStreamQuery(streams_[0]));
  OK(cuStreamQuery(streams_[1]));
  advance("10us");
  EXPECT_EQ(10000u, ran_ns());
}

TEST_F(Concurrency, OneThatComesLaterJoins) {
  OK(launch("30us", streams_[0]));
  advance("10us");
  OK(launch("10us", streams_[1]));
  advance("100us");
  EXPECT_EQ(30000u, ran_ns());
}

TEST_F(Concurrency, KernelsThatFillTheDeviceRunOneAfterTheOther) {
  OK(launch("10us", streams_[0], 80 * 32));
  OK(launch("10us", streams_[1], 80 * 32));
  advance("100us");
  EXPECT_EQ(20000u, ran_ns());
  OK(launch("10us", streams_[0], 41 * 32));
  OK(launch("10us", streams_[1], 40 * 32));
  advance("100us");
  EXPECT_EQ(40000u, ran_ns()) << "there is no room for both";
  OK(launch("10us", streams_[0], 40 * 32));
  OK(launch("10us", streams_[1], 40 * 32));
  advance("100us");
  EXPECT_EQ(50000u, ran_ns());
}

TEST_F(Concurrency, AStreamStaysInOrder) {
  OK(launch("10us", streams_[0]));
  OK(launch("10us", streams_[0]));
  OK(launch("30us", streams_[1]));
  advance("100us");
  EXPECT_EQ(30000u, ran_ns()) << "two after each other, and one beside them";
  OK(launch("10us", nullptr));
  OK(launch("10us", nullptr));
  advance("100us");
  EXPECT_EQ(50000u, ran_ns());
}

TEST_F(Concurrency, AStreamThatWaitsForAnEventStartsAfterIt) {
  CUevent event;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(launch("30us", streams_[0]));
  OK(cuEventRecord(event, streams_[0]));
  OK(cuStreamWaitEvent(streams_[1], event, 0));
  OK(launch("10us", streams_[1]));
  advance("100us");
  EXPECT_EQ(40000u, ran_ns());
  OK(cuEventDestroy_v2(event));
}

TEST_F(Concurrency, EventsHaveTheTimesOfTheirOwnStream) {
  CUevent start, end;
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(launch("30us", streams_[0]));
  OK(cuEventRecord(start, streams_[1]));
  OK(launch("10us", streams_[1]));
  OK(cuEventRecord(end, streams_[1]));
  advance("100us");
  float ms = 0;
  OK(cuEventElapsedTime(&ms, start, end));
  EXPECT_FLOAT_EQ(0.014f, ms) << "the way to the device and the kernel, not the other stream's";
  OK(cuEventDestroy_v2(start));
  OK(cuEventDestroy_v2(end));
}

TEST_F(Hardware, EveryKernelTakesTime) {
  OK(run(function("nothing")));
  advance("5us");
  FAILS(NOT_READY, cuStreamQuery(nullptr));
  advance("10us");
  OK(cuStreamQuery(nullptr));
}

TEST_F(Hardware, TheFirstLaunchLoadsTheFunction) {
  CUfunction first = function("first");
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_LOADED;
  OK(cuFuncIsLoaded(&state, first));
  EXPECT_EQ(CU_FUNCTION_LOADING_STATE_UNLOADED, state);
  size_t before = free_bytes();
  OK(run(first));
  EXPECT_EQ(before - kLargeBlock, free_bytes());
  OK(cuFuncIsLoaded(&state, first));
  EXPECT_EQ(CU_FUNCTION_LOADING_STATE_LOADED, state);
  OK(run(first));
  EXPECT_EQ(before - kLargeBlock, free_bytes());
  CUmodule module = module_;
  for (size_t i = 1; i < kFunctionsInBlock; i++) OK(run(function("other_" + std::to_string(i) + "_x")));
  EXPECT_EQ(before - kFunctionsInBlock * kLargeBlock, free_bytes()) << "a block of code, and one for each other module";
  OK(cuFuncLoad(function("last")));
  EXPECT_EQ(before - (kFunctionsInBlock + 2) * kLargeBlock, free_bytes()) << "and the second block of code";
  OK(cuModuleUnload(module));
  EXPECT_EQ(before - kFunctionsInBlock * kLargeBlock, free_bytes()) << "the module, and the second block";
}

TEST_F(Hardware, AFunctionThatDoesNotFitIsNotLaunched) {
  CUfunction first = function("first");
  CUdeviceptr all;
  OK(cuMemAlloc_v2(&all, free_bytes()));
  FAILS(OUT_OF_MEMORY, run(first));
  OK(cuMemFree_v2(all));
  OK(run(first));
}

TEST_F(Hardware, AGraphLoadsItsFunctionsBeforeItRuns) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function("first");
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CUdeviceptr all;
  OK(cuMemAlloc_v2(&all, free_bytes()));
  FAILS(OUT_OF_MEMORY, cuGraphLaunch(exec, nullptr));
  OK(cuMemFree_v2(all));
  size_t before = free_bytes();
  OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(before - kLargeBlock, free_bytes());
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(Hardware, LocalMemoryIsForAllThreadsThatCanBeResident) {
  constexpr size_t kThreads = 80 * 2048;
  CUfunction small = function("small");
  OK(run(small));
  size_t before = free_bytes();
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  EXPECT_EQ(before, free_bytes()) << "no launch yet";
  OK(run(small));
  EXPECT_EQ(before - 1024 * kThreads, free_bytes());
  CUfunction large = function("large", "  .local .align 8 .b8 depot[3072];\n  ld.local.u32 %r1, [depot];\n");
  int local = 0;
  OK(cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, large));
  EXPECT_EQ(3072, local);
  before = free_bytes();
  OK(run(large));
  EXPECT_EQ(before - 1024 * kThreads, free_bytes());
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1 << 20));
  FAILS(OUT_OF_MEMORY, run(small));
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
  OK(run(small));
  EXPECT_EQ(before - 1024 * kThreads, free_bytes()) << "what was taken stays";
}

TEST_F(Hardware, LookingAtWorkSpoilsACaptureUnlessTheThreadIsRelaxed) {
  CUstream captured, other;
  CUevent event;
  OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuEventRecord(event, other));
  advance("1ms");
  auto outcome = [&](CUstreamCaptureMode how, auto look) {
    CUgraph graph = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamBeginCapture_v2(captured, how));
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      cuCtxSetCurrent(context_);
      result = look();
    }).join();
    CUresult end = cuStreamEndCapture(captured, &graph);
    if (end == CUDA_SUCCESS) end = cuGraphDestroy(graph);
    EXPECT_EQ(result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end);
    return result;
  };
  float ms;
  const std::function<CUresult()> looks[] = {
      [&] { return cuEventQuery(event); }, [&] { return cuEventSynchronize(event); },
      [&] { return cuStreamQuery(other); }, [&] { return cuStreamSynchronize(other); },
      [&] { return cuEventElapsedTime(&ms, event, event); }};
  for (const auto &look : looks) {
    FAILS(STREAM_CAPTURE_UNSUPPORTED, outcome(CU_STREAM_CAPTURE_MODE_GLOBAL, look));
    OK(outcome(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, look));
    OK(outcome(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] {
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      cuThreadExchangeStreamCaptureMode(&mode);
      return look();
    }));
  }
  OK(outcome(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { return cuEventRecord(event, other); }));
}

TEST_F(Hardware, BlocksAreOfTheSizeThatTheDescriptionSays) {
  CUdeviceptr large, small, other;
  size_t before = free_bytes();
  OK(cuMemAlloc_v2(&large, 2 * kMiB + 1));
  EXPECT_EQ(before - kLargeBlock, free_bytes());
  OK(cuMemAlloc_v2(&small, kMiB));
  EXPECT_EQ(before - 2 * kLargeBlock, free_bytes());
  for (int i = 0; i < 3; i++) OK(cuMemAlloc_v2(&other, kMiB));
  EXPECT_EQ(before - 2 * kLargeBlock, free_bytes()) << "four pieces of 1 MiB in a block";
  unsigned word = 0;
  OK(cuMemsetD32_v2(other + kMiB - 4, 7, 1));
  OK(cuMemcpyDtoH_v2(&word, other + kMiB - 4, 4));
  EXPECT_EQ(7u, word);
  OK(cuMemAlloc_v2(&other, kMiB));
  EXPECT_EQ(before - 3 * kLargeBlock, free_bytes());
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t granularity = 0;
  OK(cuMemGetAllocationGranularity(&granularity, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(kLargeBlock, granularity);
  CUmemGenericAllocationHandle handle;
  FAILS(INVALID_VALUE, cuMemCreate(&handle, 2 * kMiB, &property, 0));
  OK(cuMemCreate(&handle, kLargeBlock, &property, 0));
  OK(cuMemRelease(handle));
}

}  // namespace
