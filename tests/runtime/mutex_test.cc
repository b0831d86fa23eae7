// FastMutex: whoever wants it gets it, one at a time, also who had to sleep for it.
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace vgpu {

namespace {

TEST(FastMutexTest, KeepsThreadsApart) {
  constexpr unsigned kThreads = 4, kTurns = 100'000;
  FastMutex mutex = {};
  unsigned turns = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (unsigned turn = 0; turn < kTurns; ++turn) {
        ScopedLock lock(mutex);
        const volatile unsigned before = turns;
        turns = before + 1;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(kThreads * kTurns, turns);
}

// Much longer than anybody should hold one: the others have gone to sleep, and each of them must wake up.
TEST(FastMutexTest, WakesWhoeverSleeps) {
  constexpr unsigned kThreads = 4;
  FastMutex mutex = {};
  unsigned turns = 0;
  std::vector<std::thread> threads;
  {
    ScopedLock lock(mutex);
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        ScopedLock own(mutex);
        ++turns;
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(0U, turns);
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(kThreads, turns);
}

}  // namespace

}  // namespace vgpu
