// Common ground of the simulator's tests: a node of their own, a context, and clients in other processes.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

constexpr size_t kMiB = 1 << 20;
constexpr size_t kBlock = 2 * kMiB;

// What the tests' node looks like; kept small so that exhausting it is quick.
constexpr size_t kDeviceBytes = 1024 * kMiB;
constexpr size_t kContextBytes = 64 * kMiB;
// A test program's own lines of the description, which hold for all devices; none unless it defines them.
const char *node_lines();
// A process with a context is in NVML's lists of device 0 soon, and in those of device 1 never while a test runs.

#define OK(call) ASSERT_EQ(CUDA_SUCCESS, (call))
#define FAILS(code, call) EXPECT_EQ(CUDA_ERROR_##code, (call))

size_t free_bytes();

// A fresh context on device 0 for each test, and nothing left over after it.
class ContextTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  CUcontext context_ = nullptr;
  size_t free_at_start_ = 0;
};

// A CUDA client in a process of its own that does what it is told, line by line; see simgpu/tools/client.cc for the commands.
class Client {
 public:
  explicit Client(bool in_pid_namespace = false);
  ~Client();
  Client(const Client &) = delete;
  Client &operator=(const Client &) = delete;

  // Sends a line and returns the answer: a result code, then values, separated by spaces.
  std::string ask(const std::string &line);
  // Sends a line and expects "0"; returns the values after it.
  std::string must(const std::string &line);
  void tell(const std::string &line);
  std::string answer();  // fails the test when there is none within 20 s
  void kill_now();       // SIGKILL, and waits for the process to be gone
  void close_input();    // the client ends by itself
  int wait_for_end();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

// What the node's books say, from outside any client: bytes held on a device by a host PID (or by all, for pid 0).
size_t held_bytes(int device, pid_t pid = 0);
std::string ctl(const std::string &arguments);
bool eventually(bool (*condition)(void *), void *data, int milliseconds);
template <typename F>
bool eventually(F condition, int milliseconds = 20'000) {
  return eventually([](void *data) { return (*static_cast<F *>(data))(); }, &condition, milliseconds);
}
