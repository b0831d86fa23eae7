// What the tests of the preloaded library share: a node of simulated GPUs, a job's region on it, and programs run there.
//
// Programs get an environment of their own, nothing of the tester's, so that a run with the library and one without it
// differ in the library alone.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "region/region.h"
#include "tests/temporary_directory.h"

namespace vgpu::test {

inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint64_t kDeviceBytes = 1040 * kMiB;
inline constexpr std::uint64_t kContextBytes = 64 * kMiB;
inline constexpr std::uint64_t kLimit = 512 * kMiB;
// What programs/steps.h allocates and holds.
inline constexpr std::uint64_t kHeldBytes = 100 * kMiB;

using Environment = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

std::string build_path(const std::string &below);   // in the build tree
std::string source_path(const std::string &below);  // in the source tree
std::string program(const std::string &name);       // one of programs/
std::string library(const std::string &name);       // one of libraries/
std::string libvgpu();
std::string system_library(const std::string &name);  // its path, or empty: this machine does not have it

std::string read_text(const std::string &path);
void write_text(const std::string &path, const std::string &text);
Words lines_of(const std::string &text);
std::string join(const Words &words, const std::string &separator);
// The symbols that table.def hooks.
Words hooked_symbols(bool metered);

struct Result {
  int status = -1;  // as waitpid says
  std::string out;
  std::string err;

  bool succeeded() const;
};

std::ostream &operator<<(std::ostream &stream, const Result &result);

// A program that runs beside the test. Its standard error is a file, read at the end.
class Running {
 public:
  Running(const Words &command, const Environment &environment);
  ~Running();
  Running(const Running &) = delete;
  Running &operator=(const Running &) = delete;

  pid_t pid() const { return pid_; }
  // Reads on until this line came. False: it did not, within 20 s or ever.
  bool says(const std::string &line);
  void tell(const std::string &line);
  Result finish();  // closes its input and waits

 private:
  bool read_some(int milliseconds);

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string error_file_;
  std::size_t seen_ = 0;
  Result result_;
};

Result run(const Words &command, const Environment &environment);

// Two simulated GPUs of 1040 MiB with the driver of one level ("13.0" or "535"), and, if asked for, a job on the first of
// them. `name` is the region's directory.
class Node {
 public:
  explicit Node(const std::string &level);
  ~Node();
  Node(const Node &) = delete;
  Node &operator=(const Node &) = delete;

  void create_job(std::uint64_t limit = kLimit, unsigned sm_percent = 100);
  // The job's launches are metered from now on.
  void create_metered_job();
  std::string region_path() const { return scratch_.path() + "/job"; }
  const std::string &scratch() const { return scratch_.path(); }
  std::string driver_directory() const;

  Environment native() const;                                                      // no libvgpu
  Environment preloaded(const Words &before = {}, const Words &after = {}) const;  // with it, and told of the region

  std::uint64_t charged(pid_t pid) const;   // what the region says this process holds on the first device
  std::uint64_t held(pid_t pid = 0) const;  // what the node's own books say
  bool nothing_held() const;                // the node takes a moment after a process's end
  std::string control(const std::string &verb) const;

 private:
  std::string level_;
  TemporaryDirectory scratch_;
  std::string uuid_;
};

// The shape of most tests here, for each level of the driver.
class LevelTest : public testing::TestWithParam<const char *> {
 protected:
  LevelTest() : node_(GetParam()) { node_.create_job(); }

  // Runs a program that ends with programs/steps.h: all it holds is charged, and it cannot have more than the limit.
  void expect_charged(const Words &command, const Environment &environment);

  Node node_;
};

#define FOR_EACH_LEVEL(suite)                                             \
  INSTANTIATE_TEST_SUITE_P(Driver, suite, testing::Values("13.0", "535"), \
                           [](const auto &info) { return info.param == std::string("535") ? "Level535" : "Level13"; })

}  // namespace vgpu::test
