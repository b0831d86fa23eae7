// What NVML does to those who trust it, as the node's description says. Each test has a node of its own, which a process of
// its own looks at: a process has one NVML, and that one node.
#include <nvml.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <map>
#include <sstream>

#include "support.h"

namespace {

constexpr size_t kHeld = kContextBytes + 10 * kMiB;
constexpr unsigned long long kNotAvailable = ~0ull;

using Look = std::function<std::string(nvmlDevice_t, pid_t)>;

// Does `look` in a process that has NVML open, beside a client that holds kHeld; returns what it says.
std::string on_node(const std::string &lines, const Look &look, bool in_pid_namespace = false) {
  static int nodes = 0;
  const std::string directory = std::string(getenv("SIMGPU_NODE")) + "/" + std::to_string(nodes++);
  int pipes[2];
  if (pipe(pipes) != 0) return "no pipe";
  pid_t child = fork();
  if (child == 0) {
    setenv("SIMGPU_NODE", directory.c_str(), 1);
    setenv("SIMGPU_CONFIG",
           ("memory=1040MiB; reserved=16MiB; context=64MiB; visibility_ms=0; idle_ms=300;" + lines).c_str(), 1);
    Client client;
    client.must("init");
    client.must("ctx 0");
    client.must("alloc " + std::to_string(10 * kMiB));
    if (in_pid_namespace) {
      if (unshare(CLONE_NEWPID) != 0) _exit(77);
      pid_t inner = fork();
      int status = 0;
      if (inner != 0) {
        waitpid(inner, &status, 0);
        client.kill_now();
        _exit(WEXITSTATUS(status));
      }
    }
    nvmlDevice_t device;
    std::string said = "no NVML";
    if (nvmlInit_v2() == NVML_SUCCESS && nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS)
      said = look(device, client.pid());
    bool told = write(pipes[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    if (!in_pid_namespace) client.kill_now();
    _exit(told ? 0 : 1);
  }
  close(pipes[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(pipes[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(pipes[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status) == 77 ? "skip" : text;
}

// One line: the result, then each process and its bytes.
std::string listed(nvmlDevice_t device) {
  nvmlProcessInfo_v2_t out[8];
  unsigned count = 8;
  std::ostringstream line;
  line << nvmlDeviceGetComputeRunningProcesses_v2(device, &count, out);
  for (unsigned i = 0; i < count && line.str() == "0"; i++) line << " " << out[i].pid << ":" << out[i].usedGpuMemory;
  return line.str();
}

std::string memory_of(nvmlDevice_t device) {
  nvmlMemory_v2_t memory{};
  memory.version = nvmlMemory_v2;
  nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(device, &memory);
  std::ostringstream line;
  line << result << " " << memory.total << " " << memory.reserved << " " << memory.free << " " << memory.used;
  return line.str();
}

TEST(NvmlManners, BytesOfAProcess) {
  auto look = [](nvmlDevice_t device, pid_t pid) {
    std::string line = listed(device);
    return line.rfind("0 " + std::to_string(pid) + ":", 0) == 0 ? line.substr(line.find(':') + 1)
                                                                : "not listed: " + line;
  };
  EXPECT_EQ(std::to_string(kHeld), on_node("", look));
  EXPECT_EQ(std::to_string(kHeld), on_node("nvml_bytes=exact", look));
  EXPECT_EQ("0", on_node("nvml_bytes=0", look));
  EXPECT_EQ(std::to_string(kNotAvailable), on_node("nvml_bytes=none", look));
}

// Beside the client, one that made 4 MiB and one that opened them; the device has them once.
TEST(NvmlManners, SharedMemoryForItsMakerOrForAll) {
  auto look = [](nvmlDevice_t device, pid_t) {
    auto bytes_of = [&](const Client &client) {
      nvmlProcessInfo_v2_t all[8];
      unsigned count = 8;
      if (nvmlDeviceGetComputeRunningProcesses_v2(device, &count, all) != NVML_SUCCESS) return std::string("no list");
      for (unsigned i = 0; i < count; i++)
        if (all[i].pid == static_cast<unsigned>(client.pid())) return std::to_string(all[i].usedGpuMemory);
      return std::string("not listed");
    };
    Client maker, user;
    maker.must("ctx 0");
    user.must("ctx 0");
    std::string opened = user.must("ipcopen " + maker.must("ipcget " + maker.must("alloc 4194304")));
    std::string said = bytes_of(maker) + " " + bytes_of(user);
    user.must("ipcclose " + opened);
    said += " " + bytes_of(user);
    return said + memory_of(device).substr(memory_of(device).rfind(' '));
  };
  const std::string context = std::to_string(kContextBytes), with = std::to_string(kContextBytes + 4 * kMiB);
  const std::string used = std::to_string(kHeld + 2 * kContextBytes + 4 * kMiB);
  EXPECT_EQ(with + " " + context + " " + context + " " + used, on_node("", look));
  EXPECT_EQ(with + " " + with + " " + context + " " + used, on_node("nvml_imports=all", look));
}

TEST(NvmlManners, UsedWithAndWithoutReserved) {
  auto look = [](nvmlDevice_t device, pid_t) { return memory_of(device); };
  auto line = [](size_t used) {
    std::ostringstream text;
    text << "0 " << 1040 * kMiB << " " << 16 * kMiB << " " << kDeviceBytes - kHeld << " " << used;
    return text.str();
  };
  EXPECT_EQ(line(kHeld), on_node("", look));
  EXPECT_EQ(line(kHeld), on_node("nvml_used=allocated", look));
  EXPECT_EQ(line(kHeld + 16 * kMiB), on_node("nvml_used=reserved", look));
}

TEST(NvmlManners, CallsThatAreNotSupported) {
  auto look = [](nvmlDevice_t device, pid_t) {
    nvmlMemory_t memory;
    unsigned count = 0;
    nvmlUtilization_t rates;
    std::ostringstream line;
    line << nvmlDeviceGetMemoryInfo(device, &memory) << " " << memory_of(device).substr(0, 1) << " "
         << listed(device).substr(0, 1) << " " << nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr)
         << " " << nvmlDeviceGetUtilizationRates(device, &rates);
    nvmlShutdown();
    nvmlInit_v2();
    return line.str() + " " + memory_of(device).substr(0, 1);
  };
  EXPECT_EQ("0 0 0 7 0 0", on_node("", look));
  EXPECT_EQ("0 3 0 7 0 3", on_node("nvml_unsupported=nvmlDeviceGetMemoryInfo_v2", look)) << "after nvmlInit, too";
  EXPECT_EQ("0 0 3 3 3 0",
            on_node("nvml_unsupported=nvmlDeviceGetComputeRunningProcesses*,nvmlDeviceGetUtilizationRates", look));
}

TEST(NvmlManners, CallsTakeTime) {
  auto look = [](nvmlDevice_t device, pid_t) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 5; i++) listed(device);
    auto lists = std::chrono::steady_clock::now() - start;
    return std::string(lists >= std::chrono::milliseconds(50) ? "slow" : "fast");
  };
  EXPECT_EQ("slow", on_node("nvml_time=10ms", look));
  EXPECT_EQ("slow", on_node("nvml_time=10ms..20ms", look));
}

TEST(NvmlManners, NamesDependOnTheCall) {
  auto look = [](nvmlDevice_t device, pid_t) {
    CUcontext context;
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS) return std::string("no CUDA");
    nvmlProcessInfo_v2_t processes[8];
    unsigned count = 8, pids[8], accounted = 8;
    nvmlDeviceGetComputeRunningProcesses_v2(device, &count, processes);
    nvmlDeviceGetAccountingPids(device, &accounted, pids);
    std::ostringstream line;
    line << count << (processes[0].pid == 1 ? " local " : " host ") << accounted << (pids[0] == 1 ? " local" : " host");
    return line.str();
  };
  std::string mixed = on_node("nvml_pids=mixed", look, true);
  if (mixed == "skip") GTEST_SKIP() << "needs the right to make a PID namespace";
  EXPECT_EQ("1 local 2 host", mixed);
  EXPECT_EQ("1 local 1 local", on_node("nvml_pids=namespace", look, true));
  EXPECT_EQ("2 host 2 host", on_node("nvml_pids=host", look, true));
}

TEST(NvmlManners, NamesOfSomewhereElse) {
  auto look = [](nvmlDevice_t device, pid_t pid) {
    unsigned pids[8] = {}, accounted = 8;
    nvmlDeviceGetAccountingPids(device, &accounted, pids);
    const bool listed_here = listed(device).rfind("0 " + std::to_string(pid) + ":", 0) == 0;
    const bool exists = kill(static_cast<pid_t>(pids[0]), 0) == 0 || errno != ESRCH;
    return std::string(listed_here ? "listed, " : "not listed, ") + (exists ? "exists" : "does not exist");
  };
  EXPECT_EQ("listed, exists", on_node("nvml_pids=host", look));
  EXPECT_EQ("listed, does not exist", on_node("nvml_pids=foreign", look));
}

// What 300 calls say, without the PIDs.
std::string many_looks(nvmlDevice_t device, pid_t) {
  std::ostringstream lines;
  for (int i = 0; i < 300; i++) {
    std::string line = listed(device);
    lines << (line.find(':') != std::string::npos ? "0 p" + line.substr(line.find(':')) : line) << "\n"
          << memory_of(device) << "\n";
  }
  return lines.str();
}

TEST(NvmlManners, ASeedMakesItChangeItsMind) {
  const std::string once = on_node("nvml_seed=7", many_looks);
  EXPECT_EQ(once, on_node("nvml_seed=7", many_looks)) << "the same seed is the same story";
  EXPECT_NE(once, on_node("nvml_seed=8", many_looks));
  std::map<std::string, int> kinds;
  std::istringstream lines(once);
  for (std::string line; std::getline(lines, line);) kinds[line]++;
  const std::string bytes = std::to_string(kHeld);
  EXPECT_GT(kinds["0 p:" + bytes], 100);
  EXPECT_GT(kinds["0 p:0"], 5);
  EXPECT_GT(kinds["0 p:" + std::to_string(kNotAvailable)], 5);
  EXPECT_GT(kinds["0"], 5) << "nobody is listed";
  EXPECT_GT(kinds["3"], 2) << "not supported";
  EXPECT_GT(kinds["3 0 0 0 0"], 2) << "not supported";
  int used[2] = {};
  for (const auto &[line, count] : kinds) {
    if (line.size() < 20) continue;
    if (line.size() > bytes.size() && line.ends_with(" " + bytes)) used[0] += count;
    if (line.ends_with(" " + std::to_string(kHeld + 16 * kMiB))) used[1] += count;
  }
  EXPECT_GT(used[0], 50);
  EXPECT_GT(used[1], 50);
}

}  // namespace
