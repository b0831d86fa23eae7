// Order of work: streams, events, host functions, captures and graphs.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "support.h"

namespace {

const char kPtx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";

class Streams : public ContextTest {
 protected:
  CUfunction kernel() {
    CUmodule module;
    CUfunction function = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, kPtx));
    EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&function, module, "nothing"));
    return function;
  }
};

struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> passed{0};
  static void wait(void *self) {
    auto *gate = static_cast<Gate *>(self);
    while (!gate->open) usleep(100);
    gate->passed++;
  }
};

TEST_F(Streams, WorkWaitsForWhatIsBeforeIt) {
  CUstream stream;
  CUevent event;
  CUdeviceptr p;
  Gate gate;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuMemAlloc_v2(&p, 4));
  OK(cuMemsetD32_v2(p, 1, 1));
  OK(cuLaunchHostFunc(stream, Gate::wait, &gate));
  OK(cuMemsetD32Async(p, 2, 1, stream));
  OK(cuEventRecord(event, stream));
  FAILS(NOT_READY, cuStreamQuery(stream));
  FAILS(NOT_READY, cuEventQuery(event));
  unsigned value = 0;
  CUstream other;
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuMemcpyDtoHAsync_v2(&value, p, 4, other));
  OK(cuStreamSynchronize(other));
  EXPECT_EQ(1u, value) << "the fill ran before the host function that precedes it";
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuMemcpyDtoHAsync_v2(&value, p, 4, other));
  FAILS(NOT_READY, cuStreamQuery(other));
  gate.open = true;
  OK(cuStreamSynchronize(other));
  EXPECT_EQ(2u, value);
  OK(cuEventSynchronize(event));
  OK(cuEventQuery(event));
  OK(cuStreamQuery(stream));
  OK(cuStreamDestroy_v2(stream));
  OK(cuStreamDestroy_v2(other));
  OK(cuEventDestroy_v2(event));
  OK(cuMemFree_v2(p));
}

TEST_F(Streams, AnEventCanBeDestroyedWhileWorkRefersToIt) {
  CUstream recording, waiting;
  CUevent event, next;
  Gate first, second;
  OK(cuStreamCreate(&recording, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuLaunchHostFunc(recording, Gate::wait, &first));
  OK(cuLaunchHostFunc(waiting, Gate::wait, &second));
  OK(cuEventRecord(event, recording));
  OK(cuStreamWaitEvent(waiting, event, 0));
  std::thread opener([&first] {
    usleep(100000);
    first.open = true;
  });
  OK(cuEventDestroy_v2(event));
  EXPECT_EQ(0, first.passed) << "destroying an event waited for it";
  opener.join();
  OK(cuStreamSynchronize(recording));
  // The next event may lie where the first one was; it has not happened, and nobody waits for it.
  OK(cuEventCreate(&next, 0));
  second.open = true;
  EXPECT_TRUE(eventually([&] { return cuStreamQuery(waiting) == CUDA_SUCCESS; }));
  OK(cuEventDestroy_v2(next));
  OK(cuStreamDestroy_v2(recording));
  OK(cuStreamDestroy_v2(waiting));
}

TEST_F(Streams, TheDefaultStreamWaitsForBlockingOnes) {
  CUstream blocking;
  Gate gate;
  OK(cuStreamCreate(&blocking, 0));
  OK(cuLaunchHostFunc(blocking, Gate::wait, &gate));
  std::thread opener([&gate] {
    usleep(20000);
    gate.open = true;
  });
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, 4));
  OK(cuMemsetD8_v2(p, 0, 4));  // on the default stream
  EXPECT_EQ(1, gate.passed);
  opener.join();
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(blocking));
}

TEST_F(Streams, FreeingOnTheDefaultStreamWaitsToo) {
  CUstream blocking;
  CUdeviceptr p;
  Gate gate;
  OK(cuMemAllocAsync(&p, kMiB, nullptr));
  OK(cuStreamCreate(&blocking, 0));
  OK(cuLaunchHostFunc(blocking, Gate::wait, &gate));
  OK(cuMemFreeAsync(p, nullptr));
  EXPECT_EQ(0, gate.passed) << "the caller waited";
  FAILS(NOT_READY, cuStreamQuery(nullptr));
  CUmemoryPool pool;
  cuuint64_t used = 0;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(kMiB, used) << "freed while a stream before it was busy";
  gate.open = true;
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(1, gate.passed);
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(0u, used);
  OK(cuCtxSynchronize());  // which gives the pool's memory back
  OK(cuStreamDestroy_v2(blocking));
}

TEST_F(Streams, ABusyDefaultStreamDoesNotHoldTheCaller) {
  CUstream blocking, other;
  CUdeviceptr p;
  Gate gate;
  unsigned *seen = nullptr;
  OK(cuMemAllocHost_v2(reinterpret_cast<void **>(&seen), 4));
  OK(cuMemAlloc_v2(&p, 4));
  OK(cuMemsetD32_v2(p, 1, 1));
  OK(cuStreamCreate(&blocking, 0));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuLaunchHostFunc(nullptr, Gate::wait, &gate));
  OK(cuMemsetD32Async(p, 2, 1, blocking));  // behind the default stream
  OK(cuMemcpyDtoHAsync_v2(seen, p, 4, nullptr));
  OK(cuMemsetD32Async(p, 3, 1, blocking));
  FAILS(NOT_READY, cuStreamQuery(blocking));
  OK(cuStreamQuery(other));
  EXPECT_EQ(0, gate.passed);
  gate.open = true;
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(2u, *seen) << "the default stream and a blocking one did not take turns";
  OK(cuMemcpyDtoH_v2(seen, p, 4));
  EXPECT_EQ(3u, *seen);
  OK(cuStreamDestroy_v2(blocking));
  OK(cuStreamDestroy_v2(other));
  OK(cuMemFree_v2(p));
  OK(cuMemFreeHost(seen));
}

TEST_F(Streams, CallbacksRunOnceAndNotInTheCaller) {
  struct Seen {
    std::atomic<int> count{0};
    std::thread::id thread;
  } seen;
  OK(cuStreamAddCallback(
      nullptr,
      [](CUstream, CUresult result, void *data) {
        auto *s = static_cast<Seen *>(data);
        EXPECT_EQ(CUDA_SUCCESS, result);
        s->thread = std::this_thread::get_id();
        s->count++;
      },
      &seen, 0));
  OK(cuCtxSynchronize());
  EXPECT_EQ(1, seen.count);
  EXPECT_NE(std::this_thread::get_id(), seen.thread);
}

TEST_F(Streams, EventsMeasureTime) {
  CUevent start, end, untimed;
  float ms = -1;
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  FAILS(INVALID_HANDLE, cuEventElapsedTime(&ms, start, end));
  OK(cuEventRecord(start, nullptr));
  usleep(20000);
  OK(cuEventRecord(end, nullptr));
  OK(cuEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 20.0f);
  EXPECT_LT(ms, 500.0f);
  OK(cuEventRecord(untimed, nullptr));
  FAILS(INVALID_HANDLE, cuEventElapsedTime(&ms, start, untimed));
  FAILS(INVALID_VALUE, cuEventCreate(&end, CU_EVENT_INTERPROCESS));
  OK(cuEventDestroy_v2(start));
  OK(cuEventDestroy_v2(untimed));
}

TEST_F(Streams, LaunchesAreCheckedAndCounted) {
  CUfunction f = kernel();
  OK(cuLaunchKernel(f, 10, 1, 1, 1024, 1, 1, 0, nullptr, nullptr, nullptr));
  FAILS(INVALID_VALUE, cuLaunchKernel(f, 0, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
  FAILS(INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1024, 2, 1, 0, nullptr, nullptr, nullptr));
  FAILS(INVALID_VALUE, cuLaunchKernel(f, 1, 65536, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  FAILS(INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 1 << 20, nullptr, nullptr, nullptr));
  FAILS(INVALID_HANDLE, cuLaunchKernel(nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  OK(cuLaunchKernelEx(&config, f, nullptr, nullptr));
  OK(cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(Streams, LaunchesOnSeveralDevicesAreOnePerDeviceAndAllAlike) {
  CUstream stream, other;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUDA_LAUNCH_PARAMS parts[2] = {{kernel(), 1, 1, 1, 32, 1, 1, 0, stream, nullptr},
                                 {kernel(), 1, 1, 1, 32, 1, 1, 0, other, nullptr}};
  OK(cuLaunchCooperativeKernelMultiDevice(parts, 1, 0));
  FAILS(INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(parts, 2, 0));  // twice the same device
  FAILS(INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(parts, 0, 0));
  FAILS(INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(parts, 1, 4));
  parts[0].hStream = nullptr;
  FAILS(INVALID_HANDLE, cuLaunchCooperativeKernelMultiDevice(parts, 1, 0));
}

TEST_F(Streams, CaptureRecordsInsteadOfDoing) {
  CUstream stream, second;
  CUevent fork, join;
  CUdeviceptr p;
  CUgraph graph;
  CUgraphExec exec;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&fork, 0));
  OK(cuEventCreate(&join, 0));
  OK(cuMemAlloc_v2(&p, 8));
  OK(cuMemsetD32_v2(p, 0, 2));
  CUfunction f = kernel();
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD32Async(p, 5, 1, stream));
  OK(cuEventRecord(fork, stream));
  OK(cuStreamWaitEvent(second, fork, 0));
  OK(cuMemsetD32Async(p + 4, 6, 1, second));
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, second, nullptr, nullptr));
  OK(cuEventRecord(join, second));
  OK(cuStreamWaitEvent(stream, join, 0));
  CUstreamCaptureStatus status;
  OK(cuStreamIsCapturing(second, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  OK(cuStreamEndCapture(stream, &graph));
  unsigned values[2] = {9, 9};
  OK(cuMemcpyDtoH_v2(values, p, 8));
  EXPECT_EQ(0u, values[0]);
  size_t count = 0;
  OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(3u, count);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(values, p, 8));
  EXPECT_EQ(5u, values[0]);
  EXPECT_EQ(6u, values[1]);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(stream));
  OK(cuStreamDestroy_v2(second));
}

TEST_F(Streams, ASpoiledCaptureSaysSo) {
  CUstream stream, second;
  CUevent event;
  CUgraph graph = reinterpret_cast<CUgraph>(1);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  FAILS(STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(ILLEGAL_STATE, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
  FAILS(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(nullptr, graph);
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuLaunchKernel(kernel(), 1, 1, 1, 1, 1, 1, 0, second, nullptr, nullptr));
  FAILS(STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(stream, &graph));
  OK(cuStreamDestroy_v2(stream));
  OK(cuStreamDestroy_v2(second));
}

TEST_F(Streams, ACaptureForbidsUnsafeCalls) {
  CUstream stream;
  CUgraph graph;
  CUdeviceptr p;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  auto spoiled = [&](CUstreamCaptureMode how, auto call) {
    EXPECT_EQ(CUDA_SUCCESS, cuStreamBeginCapture_v2(stream, how));
    CUresult result = call();
    CUresult end = cuStreamEndCapture(stream, &graph);
    if (end == CUDA_SUCCESS) end = cuGraphDestroy(graph);
    EXPECT_EQ(result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end);
    return result;
  };
  auto allocate = [&p] { return cuMemAlloc_v2(&p, 4); };
  auto elsewhere = [this, &p] {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      cuCtxSetCurrent(context_);
      result = cuMemAlloc_v2(&p, 4);
    }).join();
    return result;
  };
  FAILS(STREAM_CAPTURE_UNSUPPORTED, spoiled(CU_STREAM_CAPTURE_MODE_GLOBAL, allocate));
  FAILS(STREAM_CAPTURE_UNSUPPORTED, spoiled(CU_STREAM_CAPTURE_MODE_GLOBAL, elsewhere));
  FAILS(STREAM_CAPTURE_UNSUPPORTED, spoiled(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, allocate));
  FAILS(STREAM_CAPTURE_UNSUPPORTED, spoiled(CU_STREAM_CAPTURE_MODE_GLOBAL, [] { return cuCtxSynchronize(); }));
  OK(spoiled(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, elsewhere));
  FAILS(STREAM_CAPTURE_UNSUPPORTED, spoiled(CU_STREAM_CAPTURE_MODE_GLOBAL, [&p] { return cuMemFree_v2(p); }));
  OK(spoiled(CU_STREAM_CAPTURE_MODE_RELAXED, [&p] { return cuMemFree_v2(p); }));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(spoiled(CU_STREAM_CAPTURE_MODE_GLOBAL, allocate));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  // A stream that does not wait for the default stream does not mind it either; others do.
  OK(spoiled(CU_STREAM_CAPTURE_MODE_GLOBAL, [&p] { return cuMemsetD8Async(p, 0, 4, nullptr); }));
  OK(cuStreamDestroy_v2(stream));
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  FAILS(STREAM_CAPTURE_IMPLICIT, spoiled(CU_STREAM_CAPTURE_MODE_RELAXED, [&p] { return cuMemsetD8_v2(p, 0, 4); }));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(Streams, ADestroyedStreamEndsItsCapture) {
  CUstream stream, joined;
  CUevent event;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(joined, event, 0));
  FAILS(STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
  OK(cuStreamDestroy_v2(stream));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  OK(cuStreamIsCapturing(joined, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  OK(cuCtxSynchronize());
  // One that had only joined spoils the capture.
  CUgraph graph;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(joined, event, 0));
  OK(cuStreamDestroy_v2(joined));
  FAILS(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(Streams, ACaptureBelongsToItsThreadAndTheDefaultStreamDoesNotSay) {
  CUstream stream;
  CUgraph graph;
  CUstreamCaptureStatus status;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  FAILS(STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(nullptr, &status));
  CUresult elsewhere = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    cuCtxSetCurrent(context_);
    elsewhere = cuStreamEndCapture(stream, &graph);
  }).join();
  FAILS(STREAM_CAPTURE_WRONG_THREAD, elsewhere);
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuStreamIsCapturing(nullptr, &status));
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(Streams, GraphAllocationsAreTakenAtLaunch) {
  CUstream stream;
  CUgraph graph;
  CUgraphExec exec;
  CUdeviceptr p;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemAllocAsync(&p, 10 * kMiB, stream));
  OK(cuMemsetD8Async(p, 1, 10 * kMiB, stream));
  OK(cuMemFreeAsync(p, stream));
  OK(cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  // Freed in the graph, but kept for the next launch until trimmed.
  EXPECT_EQ(free_at_start_ - 10 * kMiB, free_bytes());
  cuuint64_t used = 1, reserved = 0;
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
  EXPECT_EQ(0u, used);
  EXPECT_EQ(10 * kMiB, reserved);
  OK(cuGraphLaunch(exec, stream));
  EXPECT_EQ(free_at_start_ - 10 * kMiB, free_bytes());
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(free_at_start_, free_bytes());
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(Streams, AnAllocationMayOutliveItsLaunch) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = 4 * kMiB;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  CUgraph clone;
  FAILS(NOT_SUPPORTED, cuGraphClone(&clone, graph));
  FAILS(NOT_SUPPORTED, cuGraphDestroyNode(node));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CUgraphExec twin;
  FAILS(NOT_SUPPORTED, cuGraphInstantiateWithFlags(&twin, graph, 0));
  FAILS(INVALID_VALUE, cuMemsetD8_v2(params.dptr, 1, 1));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuMemsetD8_v2(params.dptr, 1, 4 * kMiB));
  FAILS(INVALID_VALUE, cuGraphLaunch(exec, nullptr));  // it was not freed since
  OK(cuMemFree_v2(params.dptr));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuMemFreeAsync(params.dptr, nullptr));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(Streams, AGraphRunsInDependencyOrder) {
  CUgraph graph;
  CUgraphNode first, second, third;
  CUgraphExec exec;
  static std::vector<int> order;
  order.clear();
  CUDA_HOST_NODE_PARAMS one{[](void *) { order.push_back(1); }, nullptr};
  CUDA_HOST_NODE_PARAMS two{[](void *) { order.push_back(2); }, nullptr};
  CUDA_HOST_NODE_PARAMS three{[](void *) { order.push_back(3); }, nullptr};
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddHostNode(&third, graph, nullptr, 0, &three));
  OK(cuGraphAddHostNode(&second, graph, nullptr, 0, &two));
  OK(cuGraphAddHostNode(&first, graph, nullptr, 0, &one));
  CUgraphNode from[] = {first, second}, to[] = {second, third};
  OK(cuGraphAddDependencies(graph, from, to, 2));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ((std::vector<int>{1, 2, 3}), order);
  OK(cuGraphExecDestroy(exec));
  CUgraphNode back[] = {third}, start[] = {first};
  OK(cuGraphAddDependencies(graph, back, start, 1));
  FAILS(INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0));  // a circle
  OK(cuGraphDestroy(graph));
}

}  // namespace
