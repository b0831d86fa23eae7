// What the tests of the tools share: a simulated node, a place for regions, and vgpu-run as a child.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "region/support.h"

namespace vgpu::test {

inline std::string read_file(const std::string &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Condition>
bool eventually(Condition condition, double ms = 20'000) {
  for (const double start = now_ms(); now_ms() - start < ms; sleep_ms(2)) {
    if (condition()) return true;
  }
  return condition();
}

// As in /proc: 'S' sleeps, 'Z' is to be waited for; 'X' is gone.
inline char state_of(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name = stat.rfind(')');
  return name != std::string::npos ? stat[name + 2] : 'X';
}

inline bool is_running(pid_t pid) { return state_of(pid) != 'Z' && state_of(pid) != 'X'; }

// A program with its output in files. Killed, if it still runs, at the end of the test.
class Program {
 public:
  Program(const std::string &scratch, const std::vector<std::string> &words)
      : out_(scratch + "/out"), err_(scratch + "/err") {
    std::vector<char *> arguments;
    for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    std::filesystem::remove(out_);  // an earlier program's, which says() would take for this one's
    std::filesystem::remove(err_);
    pid_ = fork();
    if (pid_ != 0) return;
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    dup2(open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600), 1);
    dup2(open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600), 2);
    execv(arguments[0], arguments.data());
    _exit(99);
  }
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      wait();
    }
  }
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;

  pid_t pid() const { return pid_; }
  std::string out() const { return read_file(out_); }
  std::string err() const { return read_file(err_); }
  bool says(const std::string &text) const {
    return eventually([&] { return out().find(text) != std::string::npos; });
  }
  // The exit status, -1 for death by a signal.
  int wait() {
    const int status = wait_for(pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  std::string out_, err_;
  pid_t pid_;
};

struct Result {
  int status;
  std::string out, err;
};

// Two simulated GPUs of 16 and 8 GiB.
class VgpuRun : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

  VgpuRun() {
    setenv("SIMGPU_NODE", node_.path().c_str(), 1);
    setenv("SIMGPU_CONFIG", "context=64MiB; reserved=0; device; memory=16GiB; device; memory=8GiB", 1);
    setenv("LD_LIBRARY_PATH", VGPU_BUILD_DIR "/simgpu/13.0", 1);
    setenv("XDG_RUNTIME_DIR", runtime_.path().c_str(), 1);
    setenv("SCRATCH", scratch_.path().c_str(), 1);                                 // for the ranks' scripts
    setenv("HWLOC_XMLFILE", VGPU_SOURCE_DIR "/tests/vgpu-probe/topology.xml", 1);  // see probe_test.cc
    unsetenv("VGPU_REGION");
    unsetenv("SLURM_JOB_ID");
    unsetenv("LD_PRELOAD");
    // A sanitized rank would refuse to start behind a preloaded library.
    const char *asan = std::getenv("ASAN_OPTIONS");
    setenv("ASAN_OPTIONS", ((asan != nullptr ? asan : "") + std::string(":verify_asan_link_order=0")).c_str(), 1);
  }
  ~VgpuRun() override {
    EXPECT_EQ(regions(), 0) << "a region is left";
    EXPECT_EQ(std::system(VGPU_BUILD_DIR "/simgpu/simgpu-ctl stop >/dev/null"), 0);
  }

  std::vector<std::string> command(const std::vector<std::string> &arguments) const {
    std::vector<std::string> words = {VGPU_BUILD_DIR "/utils/vgpu-run/vgpu-run", "--library", library_};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  Result run(const std::vector<std::string> &arguments) const {
    Program program(scratch_.path(), command(arguments));
    const int status = program.wait();
    return {status, program.out(), program.err()};
  }

  std::string parent() const { return runtime_.path() + "/vgpu-" + std::to_string(geteuid()); }
  std::ptrdiff_t regions() const {
    std::error_code none;
    const std::filesystem::directory_iterator entries(parent(), none);
    return none ? 0 : std::distance(begin(entries), end(entries));
  }
  std::string scratch(const char *name) const { return scratch_.path() + "/" + name; }

  TemporaryDirectory node_, runtime_, scratch_;
  std::string library_ = VGPU_BUILD_DIR "/tests/vgpu-run/libmarker.so";
};

inline const std::string kRank = VGPU_BUILD_DIR "/tests/vgpu-run/rank";

}  // namespace vgpu::test
