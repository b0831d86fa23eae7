// The model of time, in real time.
#include <signal.h>

#include <chrono>

#include "timed.h"

namespace {

using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

class RealTime : public TimedTest {};

TEST_F(RealTime, BusyTimeIsWhatWasLaunched) {
  uint64_t before = busy_ns();
  auto start = Clock::now();
  for (int i = 0; i < 1000; i++) OK(launch("300us"));
  OK(cuCtxSynchronize());
  EXPECT_NEAR(3e8, ns_since(start), 3e6) << "how long it took";
  EXPECT_EQ(300000000u, busy_ns() - before);
}

TEST_F(RealTime, ALaunchDoesNotWait) {
  OK(launch("200ms"));
  auto start = Clock::now();
  for (int i = 0; i < 100; i++) OK(launch("1us"));
  EXPECT_LT(ns_since(start), 5e7);
  OK(cuCtxSynchronize());
  EXPECT_GT(ns_since(start), 1e8);
}

TEST_F(RealTime, TwoProcessesHaveTheDeviceHalfOfTheTimeEach) {
  Client first, second;
  for (Client *client : {&first, &second}) client->must("ctx 0");
  for (Client *client : {&first, &second}) client->must("launch 1ms 1000");
  uint64_t before[2] = {busy_ns(first.pid()), busy_ns(second.pid())};
  usleep(400000);
  uint64_t had[2] = {busy_ns(first.pid()) - before[0], busy_ns(second.pid()) - before[1]};
  EXPECT_NEAR(static_cast<double>(had[0]), static_cast<double>(had[1]), 5e6);
  EXPECT_GT(had[0] + had[1], 390000000u);
}

TEST_F(RealTime, StoppedAndKilledProcessesHoldNobodyUp) {
  for (int round = 0; round < 20; round++) {
    Client storm;
    storm.must("ctx 0");
    storm.must("spin 20us");
    usleep(1000 + 700 * round);
    // Wherever in a call it is, the device goes on.
    ASSERT_EQ(0, kill(storm.pid(), SIGSTOP));
    auto start = Clock::now();
    OK(launch("1ms"));
    OK(cuCtxSynchronize());
    EXPECT_LT(ns_since(start), 5e8);
  }
}

}  // namespace
