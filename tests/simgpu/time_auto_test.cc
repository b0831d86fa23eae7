// The model of time, under a clock that moves on when somebody waits: hours of device time in no time.
#include <chrono>
#include <thread>

#include "timed.h"

const char *node_lines() { return "clock=auto"; }

namespace {

using AutomaticTime = TimedTest;

TEST_F(AutomaticTime, HoursPassWhenSomebodyWaits) {
  auto start = std::chrono::steady_clock::now();
  CUevent first, last;
  float ms = 0;
  uint64_t before = busy_ns();
  OK(cuEventCreate(&first, 0));
  OK(cuEventCreate(&last, 0));
  OK(cuEventRecord(first, nullptr));
  for (int i = 0; i < 5000; i++) OK(launch("5s"));  // more than the queue holds
  OK(cuEventRecord(last, nullptr));
  OK(cuEventSynchronize(last));
  OK(cuEventElapsedTime(&ms, first, last));
  EXPECT_FLOAT_EQ(25e6, ms);
  EXPECT_EQ(25000000000000u, busy_ns() - before);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  OK(cuEventDestroy_v2(first));
  OK(cuEventDestroy_v2(last));
}

TEST_F(AutomaticTime, NothingPassesWhenNobodyWaits) {
  OK(launch("1s"));
  usleep(50000);
  FAILS(NOT_READY, cuStreamQuery(nullptr));
  OK(cuCtxSynchronize());
  OK(cuStreamQuery(nullptr));
}

TEST_F(AutomaticTime, HostFunctionsAndKernelsAlternate) {
  std::atomic<int> calls{0};
  CUstream stream;
  OK(cuStreamCreate(&stream, 0));
  for (int i = 0; i < 100; i++) {
    OK(launch("60s", stream));
    OK(cuLaunchHostFunc(
        stream, [](void *data) { (*static_cast<std::atomic<int> *>(data))++; }, &calls));
  }
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(100, calls);
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(AutomaticTime, ProcessesThatWaitForADeviceShareIt) {
  Client first, second;
  for (Client *client : {&first, &second}) client->must("ctx 0");
  first.must("launch 100s 36");
  second.must("launch 10s 360");
  first.tell("sync");
  second.tell("sync");
  EXPECT_EQ("0", first.answer());
  EXPECT_EQ("0", second.answer());
  EXPECT_EQ(3600000000000u, busy_ns(first.pid()));
  EXPECT_EQ(3600000000000u, busy_ns(second.pid()));
}

}  // namespace
