// Real processes doing what processes do: fork, exec, close everything, lose their leader, run out of descriptors.
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <thread>

#include "process_support.h"
#include "region/liveness.h"

extern char **environ;

namespace vgpu::test {

using namespace region;
namespace {

// ---- the fork family ------------------------------------------------------------------------------------------------

class ForkTest : public ProcessTest, public ::testing::WithParamInterface<const char *> {
 protected:
  void SetUp() override {
    SKIP_IF_EMULATED("the emulator ignores MADV_WIPEONFORK");
    ProcessTest::SetUp();
  }
  static pid_t split() {
    const std::string how = GetParam();
    if (how == "fork") return fork();
    if (how == "_Fork") return _Fork();
    return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  }
};

TEST_P(ForkTest, AChildStartsCleanAndTakesItsOwnSlot) {
  ASSERT_EQ(reserve(rank_, 0, Kind::data, 8 * kMiB), Grant::granted);
  const unsigned parent_slot = rank_.slot();
  const pid_t child = split();
  if (child == 0) {
    if (rank_.slot() != 0) _exit(1);
    rank_.release(0, Kind::data, 8 * kMiB);  // the parent's memory is not the child's to give back
    if (region_.memory_used(0) != 8 * kMiB) _exit(2);
    if (reserve(rank_, 0, Kind::data, kMiB) != Grant::granted) _exit(3);
    if (rank_.slot() == 0 || rank_.slot() == parent_slot) _exit(4);
    if (region_.memory_used(0) != 9 * kMiB) _exit(5);
    _exit(0);
  }
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 0);
  rank_.release(0, Kind::data, 8 * kMiB);
  expect_all_available();
}

TEST_P(ForkTest, AChildOfAProcessInTheMiddleOfAnOperation) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) take_and_give(rank_);
    });
  }
  for (int i = 0; i < 100; ++i) {
    const pid_t child = split();
    if (child == 0) _exit(take_and_give(rank_) && take_and_give(rank_) ? 0 : 1);
    EXPECT_TRUE(exited_with(wait_for(child), 0)) << i;
  }
  stop = true;
  for (std::thread &thread : threads) thread.join();
  expect_all_available();
}

INSTANTIATE_TEST_SUITE_P(Calls, ForkTest, ::testing::Values("fork", "_Fork", "clone"),
                         [](const auto &info) { return std::string(info.param); });

TEST_F(ProcessTest, VforkAndSpawnDisturbNothing) {
  ASSERT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted);
  const unsigned slot = rank_.slot();
  for (int i = 0; i < 20; ++i) {
    const pid_t vforked = vfork();
    if (vforked == 0) {
      execl("/bin/true", "true", nullptr);
      _exit(9);
    }
    EXPECT_TRUE(exited_with(wait_for(vforked), 0));
    pid_t spawned;
    char *arguments[] = {const_cast<char *>("true"), nullptr};
    ASSERT_EQ(posix_spawn(&spawned, "/bin/true", nullptr, nullptr, arguments, environ), 0);
    EXPECT_TRUE(exited_with(wait_for(spawned), 0));
    EXPECT_TRUE(take_and_give(rank_));
  }
  EXPECT_EQ(rank_.slot(), slot);
  EXPECT_EQ(used(), kMiB);
}

// ---- exec -----------------------------------------------------------------------------------------------------------

TEST_F(ProcessTest, AnExecedImageFindsWhatItsFormerSelfHeld) {
  SKIP_IF_EMULATED("an emulated program cannot exec another");
  const pid_t child = spawn([&] {
    Rank rank;
    if (Rank::attach(region_, &rank)) return 2;
    if (reserve(rank, 0, Kind::data, kLimit) != Grant::granted) return 3;
    execl("/proc/self/exe", "process_test", "--take-all", path().c_str(), nullptr);
    return 4;
  });
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 0);
  expect_all_available();
}

TEST_F(ProcessTest, AnExecedProgramWithoutUsIsReclaimedAfterTheGrace) {
  const pid_t child = spawn([&] {
    Rank rank;
    if (Rank::attach(region_, &rank) || reserve(rank, 0, Kind::data, kLimit) != Grant::granted) return 1;
    execl("/bin/sleep", "sleep", "60", nullptr);
    return 2;
  });
  while (used() == 0) sleep_ms(1);
  LivenessCheck liveness(region_.usage_path(), region_.usage());
  while (liveness.token(rank_.slot() + 1) == Token::held) sleep_ms(1);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::refused) << "its memory may still be held";
  sleep_ms(kGraceMs + 50);
  expect_all_available();
  kill(child, SIGKILL);
  wait_for(child);
}

// ---- a rank lives as long as its address space ----------------------------------------------------------------------

TEST_F(ProcessTest, AProgramThatClosesEveryDescriptor) {
  Shared<std::atomic<int>> phase;
  const pid_t child = spawn([&] {
    Rank rank;
    if (Rank::attach(region_, &rank) || reserve(rank, 0, Kind::data, kMiB) != Grant::granted) return 1;
    syscall(SYS_close_range, 0, ~0u, 0);
    phase->store(1);
    while (phase->load() == 1) sleep_ms(1);
    return take_and_give(rank) ? 0 : 2;
  });
  while (phase->load() == 0) sleep_ms(1);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kLimit), Grant::refused);
  EXPECT_EQ(used(), kMiB) << "it is alive";
  phase->store(2);
  EXPECT_TRUE(exited_with(wait_for(child), 0));
  expect_all_available();
}

TEST_F(ProcessTest, ALeaderThatEndsBeforeItsThreads) {
  Shared<std::atomic<int>> phase;
  const pid_t child = spawn([&]() -> int {
    static Rank rank;
    if (Rank::attach(region_, &rank) || reserve(rank, 0, Kind::data, kMiB) != Grant::granted) return 1;
    std::thread([&] {
      while (phase->load() != 2) sleep_ms(1);
      _exit(take_and_give(rank) ? 0 : 2);
    }).detach();
    phase->store(1);
    syscall(SYS_exit, 0);  // this thread only
    return 3;
  });
  while (phase->load() == 0) sleep_ms(1);
  sleep_ms(20);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kLimit), Grant::refused) << "its other thread lives";
  EXPECT_EQ(used(), kMiB);
  phase->store(2);
  EXPECT_TRUE(exited_with(wait_for(child), 0));
  expect_all_available();
}

TEST_F(ProcessTest, AStoppedRankKeepsItsMemoryAndStopsNobody) {
  RankProcess stopped(path());
  ASSERT_TRUE(stopped.reserve(32 * kMiB));
  stopped.signal(SIGSTOP);
  sleep_ms(20);
  const double start = now_ms();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(take_and_give(rank_));
  EXPECT_LT(now_ms() - start, 1000);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kLimit), Grant::refused);
  EXPECT_EQ(used(), 32 * kMiB);
  stopped.signal(SIGCONT);
  EXPECT_TRUE(stopped.reserve(32 * kMiB));
  stopped.end(SIGKILL);
  expect_all_available();
}

TEST_F(ProcessTest, AZombieNobodyReaps) {
  RankProcess child(path());
  ASSERT_TRUE(child.reserve(kLimit));
  child.signal(SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  expect_all_available();
}

TEST_F(ProcessTest, AProcessWithATreacherousName) {
  Shared<std::atomic<int>> phase;
  const pid_t child = spawn([&] {
    prctl(PR_SET_NAME, "a Zed) (x");
    Rank rank;
    if (Rank::attach(region_, &rank) || reserve(rank, 0, Kind::data, kMiB) != Grant::granted) return 1;
    phase->store(1);
    for (;;) pause();
  });
  while (phase->load() == 0) sleep_ms(1);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kLimit), Grant::refused) << "alive";
  kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  expect_all_available();
  wait_for(child);
}

// ---- short of descriptors, short of a path -----------------------------------------------------------------------

TEST_F(ProcessTest, OutOfFileDescriptors) {
  RankProcess living(path()), reaped(path()), zombie(path());
  ASSERT_TRUE(living.reserve(kMiB) && reaped.reserve(40 * kMiB) && zombie.reserve(kMiB));
  reaped.end(SIGKILL);
  zombie.signal(SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(zombie.pid()), &info, WEXITED | WNOWAIT), 0);
  const pid_t child = spawn([&] {
    Rank rank;
    if (Rank::attach(region_, &rank)) return 1;
    const rlimit none = {0, 0};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 2;
    // No descriptor, no /proc and no token: but kill() still tells who is gone for good. The rest counts as alive.
    if (reserve(rank, 0, Kind::data, kLimit - 2 * kMiB) != Grant::granted) return 3;
    if (reserve(rank, 0, Kind::data, kMiB) != Grant::refused) return 4;
    return 0;
  });
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 0);
  EXPECT_TRUE(living.reserve(512));
}

// It could never be told from a living rank afterwards: so it does not get in, until it can.
TEST_F(ProcessTest, AttachWithoutADescriptorToSpare) {
  const pid_t child = spawn([&] {
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none = {0, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    Rank rank;
    const Error error = Rank::attach(region_, &rank);
    if (error.fault != Fault::system || std::strstr(error.text, "ulimit -n") == nullptr) return 2;
    if (reserve(rank, 0, Kind::data, kMiB) != Grant::detached) return 3;
    setrlimit(RLIMIT_NOFILE, &limit);
    return reserve(rank, 0, Kind::data, kLimit) == Grant::granted ? 0 : 4;
  });
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 0);
  expect_all_available();
}

TEST_F(ProcessTest, AnImageWithoutATokenIsFoundAfterExecToo) {
  SKIP_IF_EMULATED("an emulated program cannot exec another");
  const pid_t child = spawn([&] {
    Rank rank;
    const std::string hidden = path() + ".hidden";
    std::filesystem::rename(path(), hidden);  // no path, no token
    if (Rank::attach(region_, &rank)) return 2;
    std::filesystem::rename(hidden, path());
    if (OwnerWord::unpack(region_.usage().owner(rank.slot()).load()).locked != 0) return 3;
    if (reserve(rank, 0, Kind::data, kLimit) != Grant::granted) return 4;
    execl("/proc/self/exe", "process_test", "--take-all", path().c_str(), nullptr);
    return 5;
  });
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 0);
  expect_all_available();
}

TEST_F(ProcessTest, ARemovedRegionStillServesItsSurvivors) {
  RankProcess killed(path()), living(path());
  ASSERT_TRUE(killed.reserve(kMiB) && living.reserve(kMiB));
  ASSERT_FALSE(Region::remove(directory_.path().c_str(), "7"));
  killed.end(SIGKILL);
  // The path is gone and with it the tokens, but whoever is reaped is dead.
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kLimit - kMiB), Grant::granted);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::refused);
}

}  // namespace

// The second half of AnExecedImageFindsWhatItsFormerSelfHeld.
int take_all(const char *path) {
  Region region;
  if (Region::attach(path, Trust::root_or_self, &region)) return 5;
  Rank rank;
  if (Rank::attach(region, &rank)) return 6;
  return reserve(rank, 0, Kind::data, kLimit) == Grant::granted ? 0 : 7;
}

}  // namespace vgpu::test

int main(int argc, char **argv) {
  if (argc == 3 && std::strcmp(argv[1], "--take-all") == 0) return vgpu::test::take_all(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
