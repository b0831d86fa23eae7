// The model of time, under a clock that stands still until it is told.
#include <signal.h>

#include <atomic>
#include <thread>

#include "timed.h"

const char *node_lines() {
  return "clock=manual; queue_depth=64; kernel_time wave*=10us+5us/wave; kernel_time fixed=7ms; kernel_time=0";
}

namespace {

void advance(const std::string &time) { ctl("clock advance " + time); }

float elapsed_ms(CUevent start, CUevent end) {
  float ms = -1;
  EXPECT_EQ(CUDA_SUCCESS, cuEventElapsedTime(&ms, start, end));
  return ms;
}

using Time = TimedTest;

TEST_F(Time, AKernelTakesItsTime) {
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  uint64_t before = busy_ns();
  OK(launch("10ms", stream));
  FAILS(NOT_READY, cuStreamQuery(stream));
  advance("9999us");
  FAILS(NOT_READY, cuStreamQuery(stream));
  EXPECT_EQ(9999000u, busy_ns() - before);
  advance("1us");
  OK(cuStreamQuery(stream));
  advance("1s");
  EXPECT_EQ(10000000u, busy_ns() - before) << "an idle device is not busy";
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(Time, EventsHappenWhenTheKernelsBeforeThemEnd) {
  CUevent events[4];
  for (CUevent &event : events) OK(cuEventCreate(&event, 0));
  OK(cuEventRecord(events[0], nullptr));
  OK(launch("3ms"));
  OK(cuEventRecord(events[1], nullptr));
  OK(launch("5ms"));
  OK(cuEventRecord(events[2], nullptr));
  advance("4ms");
  OK(cuEventQuery(events[1]));
  FAILS(NOT_READY, cuEventQuery(events[2]));
  float ms;
  FAILS(NOT_READY, cuEventElapsedTime(&ms, events[0], events[2]));
  advance("100ms");
  OK(cuEventSynchronize(events[2]));
  OK(cuEventRecord(events[3], nullptr));
  EXPECT_FLOAT_EQ(3, elapsed_ms(events[0], events[1]));
  EXPECT_FLOAT_EQ(5, elapsed_ms(events[1], events[2])) << "looked at late, but happened in time";
  EXPECT_FLOAT_EQ(104, elapsed_ms(events[0], events[3])) << "an event on an idle stream happens at once";
  for (CUevent event : events) OK(cuEventDestroy_v2(event));
}

TEST_F(Time, AnEventKeepsItsTimeWhateverIsLaunchedAfterIt) {
  CUevent start, end;
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventRecord(start, nullptr));
  OK(launch("2ms"));
  OK(cuEventRecord(end, nullptr));
  for (int i = 0; i < 3000; i++) {
    if (i % 50 == 0) advance("50ms");
    OK(launch("1ms"));
  }
  advance("1min");
  OK(cuEventQuery(end));
  EXPECT_FLOAT_EQ(2, elapsed_ms(start, end));
  OK(cuEventDestroy_v2(start));
  OK(cuEventDestroy_v2(end));
}

TEST_F(Time, TheLengthOfAKernelIsFoundByNameAndGrid) {
  const char ptx[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry fixed()\n{\n  ret;\n}\n"
      ".visible .entry wave_2()\n{\n  ret;\n}\n.visible .entry plain()\n{\n  ret;\n}\n"
      ".visible .entry _Z8spin_3msPfi()\n{\n  ret;\n}\n";
  CUmodule module;
  OK(cuModuleLoadData(&module, ptx));
  struct {
    const char *name;
    unsigned blocks;
    uint64_t ns;
  } rows[] = {{"fixed", 1, 7000000}, {"fixed", 4000, 7000000},       {"wave_2", 1, 15000}, {"wave_2", 80, 15000},
              {"wave_2", 81, 20000}, {"_Z8spin_3msPfi", 1, 3000000}, {"plain", 100, 0}};
  for (const auto &row : rows) {
    CUfunction function;
    uint64_t before = busy_ns();
    OK(cuModuleGetFunction(&function, module, row.name));
    OK(cuLaunchKernel(function, row.blocks, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    advance("1s");
    EXPECT_EQ(row.ns, busy_ns() - before) << row.name << ' ' << row.blocks;
  }
}

TEST_F(Time, KernelsOfOneProcessFollowEachOther) {
  CUstream a, b;
  OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  OK(launch("5ms", a));
  OK(launch("1ms", b));
  advance("5ms");
  OK(cuStreamQuery(a));
  FAILS(NOT_READY, cuStreamQuery(b));
  advance("1ms");
  OK(cuStreamQuery(b));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

TEST_F(Time, CopiesFillsAndFreesKeepTheirPlace) {
  CUstream stream;
  CUdeviceptr p, q;
  unsigned *seen = nullptr;
  OK(cuMemAllocHost_v2(reinterpret_cast<void **>(&seen), 4));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemAlloc_v2(&p, 4));
  OK(cuMemsetD32_v2(p, 1, 1));
  OK(cuMemAllocAsync(&q, kMiB, stream));
  *seen = 0;
  OK(launch("1ms", stream));
  OK(cuMemcpyDtoHAsync_v2(seen, p, 4, stream));
  OK(cuMemsetD32Async(p, 2, 1, stream));
  OK(launch("1ms", stream));
  OK(cuMemFreeAsync(q, stream));
  CUmemoryPool pool;
  cuuint64_t used = 0;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  EXPECT_EQ(0u, *seen);
  advance("1ms");
  EXPECT_TRUE(eventually([&] { return *static_cast<volatile unsigned *>(seen) == 1; }));
  usleep(20000);
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(kMiB, used) << "freed before its kernel ended";
  FAILS(NOT_READY, cuStreamQuery(stream));
  advance("1ms");
  OK(cuStreamSynchronize(stream));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(0u, used);
  OK(cuMemcpyDtoH_v2(seen, p, 4));
  EXPECT_EQ(2u, *seen);
  OK(cuStreamDestroy_v2(stream));
  OK(cuMemFree_v2(p));
  OK(cuMemFreeHost(seen));
}

TEST_F(Time, HostFunctionsRunWhenTheStreamComesThereAndHoldItsKernels) {
  struct Seen {
    std::atomic<bool> open{false};
    std::atomic<int> calls{0};
  } seen;
  CUstream stream;
  CUevent after;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&after, 0));
  uint64_t before = busy_ns();
  OK(launch("2ms", stream));
  OK(cuLaunchHostFunc(
      stream,
      [](void *data) {
        auto *s = static_cast<Seen *>(data);
        s->calls++;
        while (!s->open) usleep(100);
      },
      &seen));
  OK(launch("2ms", stream));
  OK(cuEventRecord(after, stream));
  usleep(20000);
  EXPECT_EQ(0, seen.calls);
  advance("2ms");
  EXPECT_TRUE(eventually([&] { return seen.calls == 1; }));
  advance("10ms");
  EXPECT_EQ(2000000u, busy_ns() - before) << "the second kernel did not wait";
  FAILS(NOT_READY, cuEventQuery(after));
  seen.open = true;
  EXPECT_TRUE(eventually([&] {
    advance("1ms");
    return cuEventQuery(after) == CUDA_SUCCESS;
  }));
  EXPECT_EQ(4000000u, busy_ns() - before);
  OK(cuStreamDestroy_v2(stream));
  OK(cuEventDestroy_v2(after));
}

TEST_F(Time, AFullQueueBlocks) {
  for (int i = 0; i < 64; i++) OK(launch("1ms"));
  std::atomic<bool> done{false};
  CUcontext context = context_;
  CUfunction function = kernel("1ms");
  std::thread launcher([&] {
    cuCtxSetCurrent(context);
    EXPECT_EQ(CUDA_SUCCESS, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    done = true;
  });
  usleep(50000);
  EXPECT_FALSE(done) << "65 launches are pending";
  advance("999us");
  usleep(20000);
  EXPECT_FALSE(done);
  advance("1us");
  EXPECT_TRUE(eventually([&] { return done.load(); }));
  launcher.join();
  FAILS(NOT_READY, cuStreamQuery(nullptr));
  advance("64ms");
  OK(cuStreamQuery(nullptr));
}

TEST_F(Time, AFullQueueBehindAHostFunctionBlocksToo) {
  std::atomic<bool> open{false};
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuLaunchHostFunc(
      stream,
      [](void *data) {
        while (!*static_cast<std::atomic<bool> *>(data)) usleep(100);
      },
      &open));
  std::atomic<int> launched{0};
  CUcontext context = context_;
  CUfunction function = kernel("1us");
  std::thread launcher([&] {
    cuCtxSetCurrent(context);
    for (; launched < 100; launched++)
      EXPECT_EQ(CUDA_SUCCESS, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  });
  usleep(100000);
  EXPECT_EQ(63, launched);
  open = true;
  EXPECT_TRUE(eventually([&] {
    advance("10us");
    return launched == 100;
  }));
  launcher.join();
  EXPECT_TRUE(eventually([&] {
    advance("1ms");
    return cuStreamQuery(stream) == CUDA_SUCCESS;
  }));
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(Time, GraphsTakeTheTimeOfTheirKernels) {
  CUgraph graph;
  CUgraphExec exec;
  CUstream stream;
  CUevent start, end;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  kernel("4ms");  // loading is no work for a capture
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(launch("4ms", stream));
  OK(launch("4ms", stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuEventRecord(start, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuEventRecord(end, stream));
  advance("15ms");
  FAILS(NOT_READY, cuEventQuery(end));
  advance("1ms");
  OK(cuEventQuery(end));
  EXPECT_FLOAT_EQ(16, elapsed_ms(start, end));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(stream));
  OK(cuEventDestroy_v2(start));
  OK(cuEventDestroy_v2(end));
}

TEST_F(Time, FreeingAndSynchronisingWait) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, kMiB));
  OK(launch("3ms"));
  std::thread clock([] {
    usleep(50000);
    advance("3ms");
  });
  OK(cuMemFree_v2(p));
  OK(cuStreamQuery(nullptr));
  clock.join();
  CUstream stream, other;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(launch("3ms", stream));
  OK(cuStreamDestroy_v2(stream));
  OK(cuStreamSynchronize(other));
  std::thread later([] {
    usleep(50000);
    advance("3ms");
  });
  uint64_t before = busy_ns();
  OK(cuCtxSynchronize());
  EXPECT_EQ(3000000u, busy_ns() - before) << "work of a destroyed stream is waited for too";
  later.join();
  OK(cuStreamDestroy_v2(other));
}

TEST_F(Time, AStreamWaitsForTheEventOfAnother) {
  CUstream a, b;
  CUevent event, end;
  OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuEventCreate(&end, 0));
  OK(launch("2ms", a));
  OK(cuEventRecord(event, a));
  OK(cuStreamWaitEvent(b, event, 0));
  OK(cuEventRecord(end, b));
  FAILS(NOT_READY, cuStreamQuery(b));
  advance("2ms");
  OK(cuStreamQuery(b));
  EXPECT_FLOAT_EQ(0, elapsed_ms(event, end));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuEventDestroy_v2(event));
  OK(cuEventDestroy_v2(end));
}

TEST_F(Time, ProcessesShareADeviceInSlices) {
  Client first, second;
  for (Client *client : {&first, &second}) client->must("ctx 0");
  first.must("launch 100ms 1");
  second.must("launch 10ms 1");
  advance("1ms");
  EXPECT_EQ(1000000u, busy_ns(first.pid()));
  EXPECT_EQ(0u, busy_ns(second.pid()));
  advance("2ms");
  EXPECT_EQ(2000000u, busy_ns(first.pid()));
  EXPECT_EQ(1000000u, busy_ns(second.pid()));
  advance("16ms");
  EXPECT_EQ(10000000u, busy_ns(first.pid()));
  EXPECT_EQ(9000000u, busy_ns(second.pid()));
  EXPECT_EQ("600", second.ask("query"));
  advance("1ms");
  EXPECT_EQ("0", second.ask("query"));
  advance("89ms");
  EXPECT_EQ("600", first.ask("query")) << "it has had 99 ms";
  advance("1ms");
  EXPECT_EQ("0", first.ask("query"));
  EXPECT_EQ(100000000u, busy_ns(first.pid()));
}

TEST_F(Time, ShortKernelsGetAsMuchAsLongOnes) {
  Client brief, tedious;
  for (Client *client : {&brief, &tedious}) client->must("ctx 0");
  brief.must("launch 1ms 60");
  tedious.must("launch 60ms 1");
  advance("40ms");
  EXPECT_EQ(20000000u, busy_ns(brief.pid()));
  EXPECT_EQ(20000000u, busy_ns(tedious.pid()));
}

TEST_F(Time, AKilledProcessLeavesTheDeviceToOthers) {
  Client first, second;
  for (Client *client : {&first, &second}) client->must("ctx 0");
  first.must("launch 3600s 10");
  second.must("launch 10ms 1");
  advance("4ms");
  pid_t dead = first.pid();
  EXPECT_EQ(2000000u, busy_ns(dead));
  first.kill_now();
  EXPECT_TRUE(eventually([dead] { return busy_ns(dead) == 0; }));
  advance("8ms");
  EXPECT_EQ("0", second.ask("query")) << "the dead process's queue was not dropped";
}

TEST_F(Time, AProcessThatEndsTakesItsQueueWithIt) {
  Client client;
  client.must("ctx 0");
  client.must("launch 3600s 10");
  pid_t gone = client.pid();
  client.close_input();
  EXPECT_EQ(0, client.wait_for_end());
  EXPECT_TRUE(eventually([gone] { return busy_ns(gone) == 0 && held_bytes(0, gone) == 0; }));
  OK(launch("1ms"));
  advance("1ms");
  OK(cuStreamQuery(nullptr));
}

TEST_F(Time, AStoppedProcessIsServedAllTheSame) {
  Client client;
  client.must("ctx 0");
  client.must("launch 5ms 4");
  ASSERT_EQ(0, kill(client.pid(), SIGSTOP));
  OK(launch("5ms"));
  advance("25ms");
  OK(cuStreamQuery(nullptr));
  EXPECT_EQ(20000000u, busy_ns(client.pid()));
  ASSERT_EQ(0, kill(client.pid(), SIGCONT));
  EXPECT_EQ("0", client.ask("query"));
}

}  // namespace
