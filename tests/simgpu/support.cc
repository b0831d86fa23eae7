#include "support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>

__attribute__((weak)) const char *node_lines() { return ""; }

size_t free_bytes() {
  size_t free = 0, total = 0;
  EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo_v2(&free, &total));
  return free;
}

void ContextTest::SetUp() {
  // The client of the test before may be dead, and the node not have noticed yet.
  ASSERT_TRUE(eventually([] { return held_bytes(0) == 0; }));
  OK(cuInit(0));
  OK(cuCtxCreate_v2(&context_, 0, 0));
  free_at_start_ = free_bytes();
}

void ContextTest::TearDown() {
  CUcontext current = nullptr;
  if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context_) {
    OK(cuCtxDestroy_v2(context_));
  }
  EXPECT_EQ(0u, held_bytes(0, getpid())) << "memory left behind";
}

std::string ctl(const std::string &arguments) {
  const char *build = getenv("SIMGPU_BUILD");
  FILE *pipe = popen((std::string(build) + "/simgpu-ctl " + arguments).c_str(), "re");
  std::string out;
  char buffer[4096];
  size_t n;
  while (pipe != nullptr && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0) out.append(buffer, n);
  if (pipe != nullptr) pclose(pipe);
  return out;
}

size_t held_bytes(int device, pid_t pid) {
  std::istringstream lines(ctl("usage"));
  size_t sum = 0, bytes, contexts, launches;
  int index, owner;
  while (lines >> index >> owner >> bytes >> contexts >> launches)
    if (index == device && (pid == 0 || owner == pid)) sum += bytes;
  return sum;
}

bool eventually(bool (*condition)(void *), void *data, int milliseconds) {
  for (int waited = 0; waited < milliseconds; waited += 5) {
    if (condition(data)) return true;
    usleep(5000);
  }
  return condition(data);
}

Client::Client(bool in_pid_namespace) {
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) abort();
  std::string program = std::string(getenv("SIMGPU_BUILD")) + "/simgpu-client";
  pid_ = fork();
  if (pid_ == 0) {
    dup2(down[0], 0);
    dup2(up[1], 1);
    if (in_pid_namespace)
      execlp("unshare", "unshare", "--pid", "--fork", "--kill-child", program.c_str(), nullptr);
    else
      execl(program.c_str(), program.c_str(), nullptr);
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  to_ = down[1];
  from_ = up[0];
}

Client::~Client() {
  if (pid_ > 0) kill_now();
  if (to_ >= 0) close(to_);
  close(from_);
}

void Client::tell(const std::string &line) {
  std::string text = line + "\n";
  if (write(to_, text.data(), text.size()) < 0) ADD_FAILURE() << "client does not listen: " << line;
}

std::string Client::answer() {
  std::string text;
  char c;
  for (;;) {
    pollfd waiting{from_, POLLIN, 0};
    int ready = poll(&waiting, 1, 20000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      ADD_FAILURE() << "client " << pid_ << " did not answer within 20 s";
      return "none";
    }
    if (read(from_, &c, 1) != 1 || c == '\n') return text;
    text += c;
  }
}

std::string Client::ask(const std::string &line) {
  tell(line);
  return answer();
}

std::string Client::must(const std::string &line) {
  std::string text = ask(line);
  EXPECT_EQ("0", text.substr(0, text.find(' '))) << line << " -> " << text;
  size_t space = text.find(' ');
  return space == std::string::npos ? "" : text.substr(space + 1);
}

void Client::kill_now() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Client::close_input() {
  close(to_);
  to_ = -1;
}

int Client::wait_for_end() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

// Every test program gets a node of its own, described here, and stops it at the end.
int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  // This program lies in tests/simgpu/ of the build directory, the libraries and the tools in its simgpu/.
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  setenv("SIMGPU_BUILD", (here.parent_path().parent_path() / "simgpu").c_str(), 0);
  const char *scratch = getenv("TMPDIR");
  std::string pattern = std::string(scratch != nullptr ? scratch : "/tmp") + "/simgpu-test-XXXXXX";
  char *directory = pattern.data();
  if (mkdtemp(directory) == nullptr) return 1;
  setenv("SIMGPU_NODE", directory, 1);
  std::string description =
      "context=64MiB; module=2MiB; reserved=16MiB; pool_chunk=32MiB; visibility_ms=80; memory=1040MiB; idle_ms=300;" +
      std::string(node_lines()) + ";device; name=Test GPU A; device; name=Test GPU B; sms=40; visibility_ms=600000";
  setenv("SIMGPU_CONFIG", description.c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  int result = RUN_ALL_TESTS();
  ctl("stop");
  std::string cleanup = std::string("rm -rf ") + directory;
  usleep(100000);
  return system(cleanup.c_str()) != 0 ? 1 : result;
}
