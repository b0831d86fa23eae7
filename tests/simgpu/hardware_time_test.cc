// What calls cost in the profile `hardware`. Only that they are not faster: how much slower depends on the machine.
#include <chrono>

#include "timed.h"

const char *node_lines() { return "profile=hardware"; }

namespace {

using HardwareTime = TimedTest;
using namespace std::chrono_literals;

template <typename Work>
std::chrono::nanoseconds time_of(Work work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - start;
}

TEST_F(HardwareTime, LaunchesTakeMicroseconds) {
  EXPECT_GE(time_of([&] { OK(launch("1us")); }), 203us) << "the function is loaded first";
  EXPECT_GE(time_of([&] {
              for (int i = 0; i < 100; i++) OK(launch("1us"));
            }),
            300us);
  OK(cuCtxSynchronize());
}

TEST_F(HardwareTime, EventsTakeMicroseconds) {
  CUevent timed, plain;
  OK(cuEventCreate(&timed, 0));
  OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  EXPECT_GE(time_of([&] {
              for (int i = 0; i < 100; i++) OK(cuEventRecord(timed, nullptr));
            }),
            250us);
  EXPECT_GE(time_of([&] {
              for (int i = 0; i < 100; i++) OK(cuEventRecord(plain, nullptr));
            }),
            25us);
  EXPECT_GE(time_of([&] {
              OK(cuEventRecord(plain, nullptr));
              OK(cuEventSynchronize(plain));
            }),
            6us);
  OK(cuEventDestroy_v2(timed));
  OK(cuEventDestroy_v2(plain));
}

TEST_F(HardwareTime, WaitingTakesTheWholeWay) {
  OK(launch("100us"));
  OK(cuCtxSynchronize());
  EXPECT_GE(time_of([&] {
              OK(launch("100us"));
              OK(cuCtxSynchronize());
            }),
            110us);
}

}  // namespace
