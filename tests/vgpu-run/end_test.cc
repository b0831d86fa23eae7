// vgpu-run: signals, and every way in which it or its ranks can end.
#include <pty.h>

#include <sstream>

#include "support.h"

namespace vgpu::test {
namespace {

class RunEnd : public VgpuRun {
 protected:
  // Ranks that say "ready" and count what they catch: "caught NAME". They end with status 7 at SIGUSR1.
  static constexpr char kCatches[] =
      "for s in HUP INT QUIT TERM USR2; do trap \"echo caught $s\" $s; done; trap 'exit 7' USR1; echo ready;"
      "while :; do sleep 0.05; done";

  static int count(const std::string &text, const std::string &word) {
    int found = 0;
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++found;
    return found;
  }
  static bool says(const Program &program, const std::string &word, int times) {
    return eventually([&] { return count(program.out(), word) >= times; });
  }
  static std::vector<pid_t> pids(const Program &program) {
    std::istringstream words(program.out());
    return {std::istream_iterator<pid_t>(words), {}};
  }
};

TEST_F(RunEnd, SignalsArePassedOnToEveryRank) {
  Program program(scratch_.path(), command({"-n", "3", "--", "/bin/sh", "-c", kCatches}));
  ASSERT_TRUE(says(program, "ready", 3)) << program.err();
  const struct {
    int number;
    const char *name;
  } rows[] = {{SIGHUP, "HUP"}, {SIGINT, "INT"}, {SIGQUIT, "QUIT"}, {SIGTERM, "TERM"}, {SIGUSR2, "USR2"}};
  for (const auto &row : rows) {
    kill(program.pid(), row.number);
    EXPECT_TRUE(says(program, std::string("caught ") + row.name, 3)) << row.name << ": " << program.out();
  }
  EXPECT_EQ(regions(), 1);
  kill(program.pid(), SIGUSR1);
  EXPECT_EQ(program.wait(), 7);
}

TEST_F(RunEnd, ARankThatASignalEndedIsNamed) {
  const Result result = run({"-n", "3", "--", "/bin/sh", "-c", "[ $VGPU_RANK != 1 ] || { echo $$; kill -KILL $$; }"});
  EXPECT_EQ(result.status, 128 + SIGKILL);
  const std::string pid = result.out.substr(0, result.out.find('\n'));
  EXPECT_EQ(result.err, "vgpu: rank 1 (pid " + pid + ") was ended by signal 9 (Killed)\n");
}

TEST_F(RunEnd, ManyRanksThatSignalsEndedAreCounted) {
  const Result result = run({"-n", "11", "--", "/bin/sh", "-c", "kill -SEGV $$"});
  EXPECT_EQ(result.status, 128 + SIGSEGV);
  EXPECT_EQ(count(result.err, "was ended by signal 11 (Segmentation fault)\n"), 8) << result.err;
  EXPECT_NE(result.err.find("vgpu: rank 7 (pid "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("vgpu: and 3 more ranks were ended by signals\n"), std::string::npos) << result.err;
}

// The user knows what they have done.
TEST_F(RunEnd, ASignalThatAllRanksGotIsNoNews) {
  Program program(scratch_.path(), command({"-n", "2", "--", "/bin/sh", "-c", "echo ready; exec sleep 60"}));
  ASSERT_TRUE(says(program, "ready", 2)) << program.err();
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);
  EXPECT_EQ(program.err(), "");
}

// vgpu-run at a terminal of its own.
class AtTerminal : public RunEnd {
 protected:
  ~AtTerminal() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      wait_for(pid_);
    }
    close(terminal_);
  }

  void start(const std::vector<std::string> &arguments) {
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    std::vector<std::string> words = command(arguments);
    std::vector<char *> pointers;
    for (std::string &word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(99);
  }
  void interrupt() const { ASSERT_EQ(write(terminal_, "\x03", 1), 1); }
  bool ends_with(int status) {
    int found = 0;
    if (!eventually([&] { return waitpid(pid_, &found, WNOHANG) == pid_; })) return false;
    pid_ = 0;
    return exited_with(found, status);
  }

  pid_t pid_ = -1;
  int terminal_ = -1;
};

TEST_F(AtTerminal, AnInterruptArrivesOnce) {
  start({"-n", "2", "--", "/bin/sh", "-c", "exec " + kRank + " interrupts >>$SCRATCH/said"});
  ASSERT_GT(pid_, 0);
  const auto said = [&](const char *word) { return count(read_file(scratch("said")), word); };
  EXPECT_TRUE(eventually([&] { return said("ready") == 2; }));
  // Until it waits for its ranks it passes on everything, because they may not have been there.
  EXPECT_TRUE(eventually([&] { return state_of(pid_) == 'S'; }));
  // While it is stopped the ranks have theirs; what it then passes on would be a second one.
  kill(pid_, SIGSTOP);
  interrupt();
  EXPECT_TRUE(eventually([&] { return said("caught INT") == 2; }));
  kill(pid_, SIGCONT);
  sleep_ms(200);
  EXPECT_EQ(said("caught INT"), 2) << "passed on what the terminal had sent already";
  kill(pid_, SIGUSR1);
  EXPECT_TRUE(ends_with(7));
}

TEST_F(AtTerminal, AnInterruptReachesRanksThatAreJustBeingStarted) {
  start({"-n", "300", "--", "/bin/sleep", "60"});
  ASSERT_GT(pid_, 0);
  EXPECT_TRUE(eventually([&] { return regions() == 1; }));
  sleep_ms(10);
  interrupt();
  EXPECT_TRUE(ends_with(130)) << "some did not get it";
}

TEST_F(RunEnd, WaitingCostsNothing) {
  Program program(scratch_.path(), command({"--", "/bin/sh", "-c", "echo ready; exec sleep 60"}));
  ASSERT_TRUE(says(program, "ready", 1));
  const auto switches = [&] {
    const std::string status = read_file("/proc/" + std::to_string(program.pid()) + "/status");
    return std::stol(status.substr(status.find("\nvoluntary_ctxt_switches:") + 25));
  };
  sleep_ms(100);
  const long before = switches();
  sleep_ms(500);
  EXPECT_LE(switches() - before, 1) << "it polls";
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.wait(), 143);
}

TEST_F(RunEnd, GrandchildrenAreNotWaitedFor) {
  const test::Stopwatch stopwatch;
  Program program(scratch_.path(), command({"-n", "2", "--", "/bin/sh", "-c",
                                            "sleep 60 >/dev/null 2>&1 & echo $! >>$SCRATCH/left; kill -KILL $$"}));
  EXPECT_EQ(program.wait(), 137);
  EXPECT_LT(stopwatch.wall_ms(), 30'000);
  EXPECT_EQ(regions(), 0) << "must go although its processes are still there";
  std::istringstream left(read_file(scratch("left")));
  int found = 0;
  for (pid_t pid; left >> pid; ++found) {
    EXPECT_TRUE(is_running(pid));
    kill(pid, SIGKILL);
  }
  EXPECT_EQ(found, 2);
}

TEST_F(RunEnd, WhenItIsKilledItsRanksDieAndTheNextOneClearsUp) {
  {
    Program program(scratch_.path(), command({"-n", "3", "--", "/bin/sh", "-c", "echo $$; exec sleep 60"}));
    ASSERT_TRUE(eventually([&] { return pids(program).size() == 3; })) << program.err();
    const std::vector<pid_t> ranks = pids(program);
    kill(program.pid(), SIGKILL);
    EXPECT_EQ(program.wait(), -1);
    for (const pid_t rank : ranks) EXPECT_TRUE(eventually([&] { return !is_running(rank); })) << rank;
  }
  EXPECT_EQ(regions(), 1) << "nobody could remove it";
  // What a vgpu-run that was killed half-way through making a region leaves; and what is none of our business.
  std::filesystem::create_directory(parent() + "/.new-0123456789abcdef");
  std::ofstream(parent() + "/.new-0123456789abcdef/limits") << "x";
  std::filesystem::create_directory(parent() + "/keep");
  EXPECT_EQ(run({"--", "/bin/sh", "-c", "ls -A ${VGPU_REGION%/*} | wc -l"}).out, "2\n") << "its own, and keep";
  EXPECT_TRUE(std::filesystem::remove(parent() + "/keep"));
}

TEST_F(RunEnd, TheNextOneLeavesTheLivingAlone) {
  TemporaryDirectory other;
  Program first(other.path(), command({"--", "/bin/sh", "-c", "echo ready; exec sleep 60"}));
  ASSERT_TRUE(says(first, "ready", 1));
  EXPECT_EQ(run({"--", "/bin/sh", "-c", "ls ${VGPU_REGION%/*} | wc -l"}).out, "2\n");
  EXPECT_EQ(regions(), 1);

  // Where the first one's PID means nothing, or somebody else.
  if (std::system("unshare --pid --fork true 2>/dev/null") == 0) {
    std::vector<std::string> words = {"/usr/bin/unshare", "--pid", "--fork", "--mount-proc"};
    const std::vector<std::string> inner = command({"--", "/bin/sh", "-c", "ls ${VGPU_REGION%/*} | wc -l"});
    words.insert(words.end(), inner.begin(), inner.end());
    Program second(scratch_.path(), words);
    EXPECT_EQ(second.wait(), 0) << second.err();
    EXPECT_EQ(second.out(), "2\n");
    EXPECT_EQ(regions(), 1);
  }
  kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.wait(), 143);
}

TEST_F(RunEnd, ManyAtOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 12; ++i) {
    children.push_back(spawn([&] {
      const std::vector<std::string> words =
          command({"-n", "2", "--gpu-mem=1G", "--", "/bin/sh", "-c", "[ -e $VGPU_REGION/limits ] && exit 5"});
      std::vector<char *> arguments;
      for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
      arguments.push_back(nullptr);
      execv(arguments[0], arguments.data());
      return 99;
    }));
  }
  for (const pid_t child : children) EXPECT_TRUE(exited_with(wait_for(child), 5));
}

TEST_F(RunEnd, WithItsMessagesUnreadItStillClearsUp) {
  const std::string script = "{ sleep 0.3; exec " VGPU_BUILD_DIR "/utils/vgpu-run/vgpu-run --library " + library_ +
                             " -- no-such-program; } 2>&1 | true; exit ${PIPESTATUS[0]}";
  Program program(scratch_.path(), {"/bin/bash", "-c", script});
  EXPECT_EQ(program.wait(), 127);
}

TEST_F(RunEnd, ItsRanksHaveTheCallersSignals) {
  const std::string script = "trap '' HUP CHLD; exec " VGPU_BUILD_DIR "/utils/vgpu-run/vgpu-run --library " + library_ +
                             " -- sh -c 'kill -HUP $$; grep -i ^SigBlk /proc/self/status; exit 4'";
  Program program(scratch_.path(), {"/bin/bash", "-c", script});
  EXPECT_EQ(program.wait(), 4) << "SIGHUP was ignored, as under nohup, and is not any more";
  EXPECT_EQ(program.out(), "SigBlk:\t0000000000000000\n");
}

}  // namespace
}  // namespace vgpu::test
