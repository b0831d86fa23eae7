// Ranks whose PID goes to somebody else, or means something else where the reader is.
#include <sched.h>
#include <sys/mount.h>

#include <atomic>
#include <fstream>

#include "process_support.h"
#include "region/liveness.h"

namespace vgpu::test {

using namespace region;
namespace {

class NamespaceTest : public ProcessTest {
 protected:
  // Runs `body` as PID 1 of a new PID namespace with a /proc of its own. False: not possible here.
  static bool in_pid_namespace(const std::function<int()> &body) {
    const pid_t outer = spawn([&] {
      if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return 77;
      const pid_t inner = spawn([&] {
        if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
        if (mount("proc", "/proc", "proc", 0, nullptr) != 0) return 77;
        return body();
      });
      return WEXITSTATUS(wait_for(inner));
    });
    const int status = wait_for(outer);
    if (exited_with(status, 77)) return false;
    EXPECT_TRUE(exited_with(status, 0)) << "exit code " << WEXITSTATUS(status);
    return true;
  }
};

#define IN_PID_NAMESPACE_OR_SKIP(...) \
  if (!in_pid_namespace(__VA_ARGS__)) GTEST_SKIP() << "needs root and PID namespaces"

TEST_F(NamespaceTest, APidThatWentToAnotherProcess) {
  IN_PID_NAMESPACE_OR_SKIP([&] {
    auto *rank = new Rank;
    if (Rank::attach(region_, rank)) return 1;
    const pid_t first = spawn([&] {
      Rank own;
      if (Rank::attach(region_, &own) || reserve(own, 0, Kind::data, kLimit) != Grant::granted) return 1;
      for (;;) pause();
    });
    while (region_.memory_used(0) == 0) sleep_ms(1);
    kill(first, SIGKILL);
    wait_for(first);
    sleep_ms(30);  // start times have a grain of 10 ms
    std::ofstream("/proc/sys/kernel/ns_last_pid") << first - 1;
    const pid_t second = spawn([] {
      for (;;) pause();
      return 0;
    });
    if (second != first) return 77;
    const Grant grant = reserve(*rank, 0, Kind::data, kLimit);
    kill(second, SIGKILL);
    wait_for(second);
    return grant == Grant::granted ? 0 : 2;
  });
}

TEST_F(NamespaceTest, WithinOnePidNamespaceTheDeadAreFoundAtOnce) {
  IN_PID_NAMESPACE_OR_SKIP([&] {
    auto *rank = new Rank;
    if (Rank::attach(region_, rank)) return 1;
    {
      RankProcess child(path());
      if (!child.reserve(kLimit)) return 2;
      child.end(SIGKILL);
    }
    return reserve(*rank, 0, Kind::data, kLimit) == Grant::granted ? 0 : 3;
  });
}

TEST_F(NamespaceTest, AcrossPidNamespacesTheTokenTells) {
  Shared<std::atomic<int>> phase;
  const pid_t outer = spawn([&] {
    if (unshare(CLONE_NEWPID) != 0) {
      phase->store(-1);
      return 77;
    }
    const pid_t inner = spawn([&] {
      Rank own;
      if (Rank::attach(region_, &own) || reserve(own, 0, Kind::data, kLimit) != Grant::granted) return 1;
      phase->store(1);
      for (;;) pause();
    });
    while (phase->load() != 2) sleep_ms(1);
    kill(inner, SIGKILL);
    wait_for(inner);
    phase->store(3);
    return 0;
  });
  while (phase->load() == 0) sleep_ms(1);
  if (phase->load() < 0) GTEST_SKIP() << "needs root and PID namespaces";
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::refused) << "alive, though its PID means nothing here";
  sleep_ms(kGraceMs + 100);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::refused) << "and stays alive";
  phase->store(2);
  while (phase->load() != 3) sleep_ms(1);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::refused) << "perhaps its memory is still held";
  sleep_ms(kGraceMs + 100);
  expect_all_available();
  wait_for(outer);
}

// Start times in /proc are shifted by the reader's time namespace.
TEST_F(NamespaceTest, AcrossTimeNamespacesTheTokenTells) {
  Shared<std::atomic<int>> phase;
  const pid_t outer = spawn([&] {
    constexpr int kNewTime = 0x80;  // CLONE_NEWTIME
    if (unshare(kNewTime) != 0 || !(std::ofstream("/proc/self/timens_offsets") << "boottime 1000 0").flush()) {
      phase->store(-1);
      return 77;
    }
    return WEXITSTATUS(wait_for(spawn([&] {
      Rank own;
      if (Rank::attach(region_, &own) || reserve(own, 0, Kind::data, kLimit) != Grant::granted) return 1;
      phase->store(1);
      while (phase->load() == 1) sleep_ms(1);
      return 0;
    })));
  });
  while (phase->load() == 0) sleep_ms(1);
  if (phase->load() < 0) GTEST_SKIP() << "needs root and time namespaces";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::refused) << "it lives, in another time";
    sleep_ms(kGraceMs / 2 + 100);
  }
  phase->store(2);
  EXPECT_TRUE(exited_with(wait_for(outer), 0));
}

// A PID namespace without a /proc of its own: there, /proc/<pid> is somebody else.
TEST_F(NamespaceTest, AForeignProcIsNotBelieved) {
  const pid_t outer = spawn([&] {
    if (unshare(CLONE_NEWPID) != 0) return 77;
    const pid_t inner = spawn([&] {
      if (identify_self().proc_is_ours) return 1;
      RankProcess living(path());  // PID 2 here; /proc/2 is a kernel thread's
      if (!living.reserve(kMiB)) return 2;
      Rank own;
      if (Rank::attach(region_, &own)) return 3;
      for (int i = 0; i < 3; ++i) {
        if (reserve(own, 0, Kind::data, kLimit) != Grant::refused) return 4;
        sleep_ms(kGraceMs / 2);
      }
      if (!living.reserve(kMiB)) return 5;
      living.end(SIGKILL);
      return reserve(own, 0, Kind::data, kLimit) == Grant::granted ? 0 : 6;
    });
    return WEXITSTATUS(wait_for(inner));
  });
  const int status = wait_for(outer);
  if (exited_with(status, 77)) GTEST_SKIP() << "needs root and PID namespaces";
  EXPECT_TRUE(exited_with(status, 0)) << WEXITSTATUS(status);
}

}  // namespace
}  // namespace vgpu::test
