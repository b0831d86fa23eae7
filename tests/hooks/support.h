// What the hook tests share: a simulated node with its true books, a region for its devices, and ranks that are real
// programs with the library preloaded. The test's own process loads neither the library nor a driver.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "region/support.h"
#include "simgpu/node/link.h"

namespace vgpu::test {

using namespace region;

inline constexpr std::uint64_t kBlock = simgpu::kBlockBytes;

// A node of the test's own, for as long as this lives. Devices are numbered as NVML and PCI do.
class Node {
 public:
  explicit Node(const char *description);
  ~Node();
  Node(const Node &) = delete;
  Node &operator=(const Node &) = delete;

  // The simulated driver's own books, as `simgpu-ctl usage` prints them: what is held, by one process or all.
  std::uint64_t held(unsigned device, pid_t pid = 0) const;
  // How long a device's processes had it so far, by its own schedule, and when that was.
  struct Busy {
    std::uint64_t ns, at_ns;
  };
  Busy busy(unsigned device) const;
  unsigned devices() const { return static_cast<unsigned>(link_->devices().size()); }
  const simgpu::DeviceFacts &facts(unsigned device) const { return state(device).facts; }
  simgpu::DeviceState &state(unsigned device) const { return *link_->devices()[device].state; }
  const simgpu::NodeState &processes() const { return *link_->node(); }
  std::string uuid(unsigned device) const;
  // Takes a device from its clients, or gives it back.
  void set_broken(unsigned device, bool broken) {
    set_state(device, broken ? simgpu::kDeviceBroken : simgpu::kDeviceOk);
  }
  // Lets a device fall off the bus, for those who use it now.
  void lose(unsigned device) { set_state(device, simgpu::kDeviceLost); }
  // What is wrong with the driver from now on, for all programs on this node; see docs/simgpu.md. Empty: nothing.
  void set_faults(const std::string &rules);

  // What a program on this node needs in its environment.
  std::vector<std::string> environment() const;

 private:
  void set_state(unsigned device, std::uint32_t state);

  TemporaryDirectory directory_;
  std::string description_;
  std::unique_ptr<simgpu::NodeLink> link_;
};

// The devices of a node as a region lists them.
std::vector<DeviceSpec> devices_of(const Node &node, std::uint64_t limit);

// A program with its environment, in a child as spawn() makes them. Descriptors: stdin, stdout and stderr, or -1 for
// the test's own; and one that it finds under the number 3.
struct Launch {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  int standard[3] = {-1, -1, -1};
  int third = -1;
};
pid_t launch(const Launch &launch);

// Where `make` put a program of the tests.
std::string built(const std::string &path);
// What a program of a job needs in its environment: the node, and if there is a region, the library and that.
std::vector<std::string> environment_of_rank(const Node &node, const std::string &region);

// What hooks_client answered: the driver's result, and values.
struct Answer {
  int result = -1;
  std::vector<std::string> values;

  std::uint64_t number(std::size_t index = 0) const;
};

// A program of a job: hooks_client, which does what it is told line by line. Without a region it is no rank, and has the
// node for itself.
class Program {
 public:
  // `wrapper`: a program, with its arguments, that starts this one.
  Program(const Node &node, const std::string &region, const std::vector<std::string> &environment = {},
          const std::vector<std::string> &wrapper = {});
  ~Program();
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;

  Answer ask(const std::string &line);
  bool tell(const std::string &line);           // without waiting for an answer
  Answer answer(const std::string &line = "");  // to what it was told
  // Expects success; returns the first value.
  std::uint64_t must(const std::string &line);
  std::uint64_t make(const std::string &symbol, std::uint64_t amount) {
    return must("make " + symbol + " " + std::to_string(amount));
  }
  void drop(const std::string &symbol, std::uint64_t value) { must("drop " + symbol + " " + std::to_string(value)); }

  pid_t pid() const { return pid_; }
  void end(int signal);                         // and waits for it
  int finish();                                 // lets it come to its own end; its status
  std::vector<std::string> complaints() const;  // what it wrote to stderr

 private:
  TemporaryDirectory scratch_;
  pid_t pid_ = 0;
  int socket_ = -1;
};

inline constexpr int kOutOfMemory = CUDA_ERROR_OUT_OF_MEMORY;

inline std::string text(std::uint64_t value) { return std::to_string(value); }

// A node with three devices: A and B alike, except that B is slower; C larger, and late in NVML's lists.
class HooksTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kContext = 64 * kMiB;
  static constexpr std::uint64_t kModule = 2 * kMiB;  // with its code
  static constexpr std::uint64_t kDevice = 1024 * kMiB;
  // What a context is charged before anybody has measured one, on the small devices and on the large one.
  static constexpr std::uint64_t kGuess = 130 * kMiB;
  static constexpr std::uint64_t kLateGuess = 640 * kMiB;
  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};  // the device's own size
  static constexpr unsigned kLate = 2;
  static constexpr long kLateMs = 150;

  static Node &node();

  void TearDown() override;

  void limit_to(std::uint64_t limit) { make_region(devices_of(node(), limit)); }
  void make_region(const std::vector<DeviceSpec> &devices);
  const std::string &region() const { return region_; }
  void change_limit(unsigned dev, std::uint64_t limit);

  // A rank, and one with a context on a device.
  std::unique_ptr<Program> start(const std::vector<std::string> &environment = {});
  std::unique_ptr<Program> start_on(unsigned device, std::uint64_t *context = nullptr);

  std::uint64_t charged(unsigned dev = 0) const;  // without blocks that are charged ahead
  std::uint64_t charged(unsigned dev, Kind kind) const;
  // The region says this, and so do the driver's books.
  void expect_held(std::uint64_t bytes, unsigned dev = 0);
  // The line of a refusal, put together from what it must say.
  struct Refusal {
    unsigned dev = 0;
    std::string used, asked, limit;
    std::string held_by;  // with its "; held by ", or empty
  };
  static std::string refusal_line(const Refusal &refusal);
  static std::string held_by_itself(const Program &program, const std::string &bytes);

 private:
  TemporaryDirectory directory_;
  std::string region_;
};

// In a job with 512 MiB, with one rank that has a context.
class OneRankTest : public HooksTest {
 protected:
  void SetUp() override {
    limit_to(512 * kMiB);
    program_ = start_on(0);
  }
  void TearDown() override {
    program_.reset();
    HooksTest::TearDown();
  }

  std::uint64_t call(const std::string &line) { return program_->must("call " + line); }
  int result_of(const std::string &line) { return program_->ask("call " + line).result; }

  std::unique_ptr<Program> program_;
};

}  // namespace vgpu::test
