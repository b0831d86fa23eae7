// Nodes: what their description and the environment make of them, and how they begin and end.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "simgpu/node/config.h"
#include "support.h"

namespace {

// Sets a variable for the length of a test's scope; whatever starts in it inherits it.
class Setting {
 public:
  Setting(const char *name, const std::string &value) : name_(name) {
    const char *old = getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() {
    if (had_)
      setenv(name_, old_.c_str(), 1);
    else
      unsetenv(name_);
  }
  Setting(const Setting &) = delete;
  Setting &operator=(const Setting &) = delete;

 private:
  const char *name_;
  bool had_;
  std::string old_;
};

std::string directory(const char *name) { return std::string(getenv("SIMGPU_NODE")) + "/" + name; }

// What a process has touched of the memory it shares; the machine's total is not ours to measure.
size_t shared_memory_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  size_t kilobytes = 0;
  while (file >> word)
    if (word == "RssShmem:") file >> kilobytes;
  return kilobytes << 10;
}

// How many calls a process has entered and how many have returned.
std::pair<unsigned long, unsigned long> calls_of(pid_t pid) {
  std::istringstream lines(ctl("calls"));
  unsigned long entered, returned;
  for (int owner; lines >> owner >> entered >> returned;)
    if (owner == pid) return {entered, returned};
  return {0, 0};
}

TEST(Calls, AreCountedWhenTheyBeginAndWhenTheyEnd) {
  Setting node("SIMGPU_NODE", directory("calls"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=1GiB; context=64MiB; count_calls=yes");
  Setting faults("SIMGPU_FAULTS", "cuMemAlloc_v2@2 delay 1000");
  Client client;
  client.must("ctx 0");
  const auto before = calls_of(client.pid());
  EXPECT_NE(0u, before.first);
  EXPECT_EQ(before.first, before.second);
  client.must("alloc 4096");
  EXPECT_EQ(std::make_pair(before.first + 1, before.second + 1), calls_of(client.pid()));
  client.tell("alloc 4096");
  EXPECT_TRUE(eventually([&] { return calls_of(client.pid()).first == before.first + 2; }));
  EXPECT_EQ(before.second + 1, calls_of(client.pid()).second) << "it is inside the driver";
  client.answer();
  EXPECT_EQ(std::make_pair(before.first + 2, before.second + 2), calls_of(client.pid()));
  client.ask("forkcheck");
  EXPECT_EQ(std::make_pair(before.first + 2, before.second + 2), calls_of(client.pid())) << "a child is no client";
}

TEST(Calls, AreNotCountedUnlessTheNodeSaysSo) {
  Setting node("SIMGPU_NODE", directory("uncounted"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=1GiB; context=64MiB");
  Client client;
  client.must("ctx 0");
  EXPECT_EQ("", ctl("calls"));
}

TEST(Visible, EveryFormOfTheVariable) {
  struct {
    const char *value, *answer;
  } rows[] = {
      {"1", "0 B"},
      {"1,0", "0 B+A"},
      {" 0 , 1 ", "0 A+B"},
      {"GPU-516d6770-7500-4000-8000-000000000002", "0 B"},
      {"GPU-516d6770-7500-4000-8000-000000000002,0", "0 B+A"},
      {"GPU-5", "100"},  // no unique beginning
      {"", "100"},       // none
      {"7", "100"},      // no such device
      {"1,7,0", "0 B"},  // ends at the first that means nothing
      {"0,0", "100"},    // twice the same
      {"-1", "100"},
  };
  Setting node("SIMGPU_NODE", directory("visible"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=1GiB; device; name=A; device; name=B");
  for (const auto &row : rows) {
    Setting visible("CUDA_VISIBLE_DEVICES", row.value);
    Client client;
    EXPECT_EQ(row.answer, client.ask("devices")) << row.value;
  }
}

TEST(Visible, FasterDevicesComeFirstUnlessToldOtherwise) {
  Setting node("SIMGPU_NODE", directory("order"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=1GiB; device; name=slow; sms=10; device; name=fast; sms=100");
  Client by_speed;
  EXPECT_EQ("0 fast+slow", by_speed.ask("devices"));
  Setting order("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  Client by_bus;
  EXPECT_EQ("0 slow+fast", by_bus.ask("devices"));
}

TEST(Nodes, SideBySideTheyDoNotMeet) {
  Client here;
  here.must("ctx 0");
  {
    Setting node("SIMGPU_NODE", directory("other"));
    Client there;
    there.must("ctx 0");
    EXPECT_EQ(kContextBytes, held_bytes(0));
    EXPECT_EQ(kContextBytes, held_bytes(0, there.pid()));
  }
  EXPECT_EQ(kContextBytes, held_bytes(0, here.pid()));
}

TEST(Nodes, AnEightyGibibyteDeviceNeedsNoSuchHost) {
  Setting node("SIMGPU_NODE", directory("large"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=80GiB; device");
  Client client;
  client.must("ctx 0");
  size_t before = shared_memory_of(client.pid());
  std::string p = client.must("alloc " + std::to_string(70ull << 30));
  client.must("fill " + p + " 0 " + std::to_string(70ull << 30));
  client.must("fill " + p + " 1 1000");
  EXPECT_EQ("1", client.must("peek " + p));
  EXPECT_LT(before, shared_memory_of(client.pid())) << "measures nothing";
  EXPECT_LT(shared_memory_of(client.pid()), before + (64ull << 20));
}

TEST(Nodes, EndWhenIdleAndBeginAgain) {
  Setting node("SIMGPU_NODE", directory("idle"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=1GiB; device");
  std::string socket = directory("kernel.sock");
  for (int round = 0; round < 3; round++) {
    Client client;
    client.must("ctx 0");
    EXPECT_EQ(0, access(socket.c_str(), F_OK));
    usleep(150000);
    client.must("alloc 1000");  // not idle while somebody is connected
    client.kill_now();
    EXPECT_TRUE(eventually([&] { return access(socket.c_str(), F_OK) != 0; })) << "the node did not end";
  }
}

TEST(Nodes, ManyStartOneTogether) {
  Setting node("SIMGPU_NODE", directory("rush"));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 12; i++) clients.push_back(std::make_unique<Client>());
  for (auto &client : clients) client->tell("ctx 0");
  for (auto &client : clients) EXPECT_EQ("0", client->answer());
  EXPECT_EQ(12 * kContextBytes, held_bytes(0)) << "not all on the same node";
}

// What a client does that finds no socket because the one that starts the node was killed meanwhile.
TEST(Nodes, ASecondKernelProcessLeavesTheFirstAlone) {
  Setting node("SIMGPU_NODE", directory("second"));
  Client client;
  client.must("ctx 0");
  std::string kernel = std::string(getenv("SIMGPU_BUILD")) + "/simgpu-kernel";
  EXPECT_EQ(0, system(kernel.c_str()));
  EXPECT_EQ(kContextBytes, held_bytes(0)) << "this is another node";
}

TEST(Nodes, AKernelProcessThatStartsIsWaitedFor) {
  Setting node("SIMGPU_NODE", directory("slow"));
  std::string place = getenv("SIMGPU_NODE");
  ASSERT_EQ(0, mkdir(place.c_str(), 0777));
  int lock = open((place + "/kernel.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(0, flock(lock, LOCK_EX));  // we are the one that starts, and do not get any further
  Client client;
  client.tell("ctx 0");
  usleep(500000);
  EXPECT_NE(0, access((place + "/kernel.sock").c_str(), F_OK)) << "a second one started";
  close(lock);
  EXPECT_EQ("0", client.answer());
}

TEST(Nodes, MayBeStartedWithoutStandardDescriptors) {
  int round = 0;
  for (const char *closed : {"<&-", "2>&-", "<&- 2>&-"}) {
    Setting node("SIMGPU_NODE", directory(("closed" + std::to_string(round++)).c_str()));
    EXPECT_NE("", ctl(std::string("devices ") + closed)) << closed;
    Client client;
    client.must("ctx 0");
    std::string p = client.must("alloc 1000");
    client.must("fill " + p + " 9 1000");
    EXPECT_EQ("9", client.must("peek " + p)) << closed;
  }
}

// One asks for all there is and fails; what it holds for a moment must not make the other fail.
TEST(Nodes, WhoAsksForTooMuchDoesNotMakeOthersFail) {
  Setting node("SIMGPU_NODE", directory("flood"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=16400MiB; reserved=16MiB; context=64MiB; device");
  for (int round = 0; round < 3; round++) {
    Client greedy, modest;
    greedy.must("ctx 0");
    modest.must("ctx 0");
    greedy.must("flood " + std::to_string(16384 * kMiB));
    EXPECT_EQ("0", modest.must("repeat " + std::to_string(12000 * kMiB) + " 500"));
  }
}

TEST(Nodes, WhimsAreToldFromMistakes) {
  Setting none("SIMGPU_WHIMS", "");
  auto mistake = [](const std::string &text) {
    simgpu::NodeConfig config;
    std::string error;
    return simgpu::parse_node_config(text, &config, &error) ? "none" : error;
  };
  for (const char *line :
       {"profile=ideal", "profile=hardware", "launch_time=5us", "event_time=0", "doorbell=1us", "event_lag=20us",
        "function=1MiB", "function_time=2ms", "local_memory=fixed", "capture_strict=no", "block=16MiB",
        "nvml_pids=mixed", "nvml_pids=foreign", "nvml_bytes=0", "nvml_used=reserved", "nvml_imports=all",
        "nvml_time=10ms..100ms", "nvml_unsupported=nvmlDeviceGetName", "nvml_seed=12"})
    EXPECT_EQ("none", mistake(line));
  EXPECT_EQ("line 1: profile=kind: not one of ideal, hardware", mistake("profile=kind"));
  EXPECT_EQ("line 1: block=3MiB: not one of 2MiB, 4MiB, 8MiB, 16MiB", mistake("block=3MiB"));
  EXPECT_EQ("line 1: local_memory=1: not one of fixed, grows", mistake("local_memory=1"));
  EXPECT_EQ("line 1: capture_strict=1: not one of yes, no", mistake("capture_strict=1"));
  EXPECT_EQ("line 1: doorbell=2s: not a duration (like 5us) of up to 1 s", mistake("doorbell=2s"));
  EXPECT_EQ("line 1: bell=2us: no such key", mistake("bell=2us"));
  EXPECT_EQ("line 1: nvml_pids=mine: not one of host, namespace, mixed, foreign", mistake("nvml_pids=mine"));
  EXPECT_EQ("line 1: nvml_bytes=1: not one of exact, 0, none", mistake("nvml_bytes=1"));
  EXPECT_EQ("line 1: nvml_used=all: not one of allocated, reserved", mistake("nvml_used=all"));
  EXPECT_EQ("line 1: nvml_imports=1: not one of maker, all", mistake("nvml_imports=1"));
  EXPECT_EQ("line 1: nvml_time=2ms..1ms: not a duration (like 10ms, or 10ms..100ms)", mistake("nvml_time=2ms..1ms"));
  EXPECT_EQ("line 1: nvml_seed=x: not a number", mistake("nvml_seed=x"));
  simgpu::NodeConfig config;
  std::string error;
  ASSERT_TRUE(simgpu::parse_node_config("device\nprofile=hardware\ndoorbell=9us\ndevice", &config, &error));
  EXPECT_EQ(9000u, config.devices[0].doorbell_ns);
  EXPECT_EQ(3000u, config.devices[0].launch_ns);
  EXPECT_EQ(0u, config.devices[1].launch_ns);
}

TEST(Nodes, WhimsComeBeforeTheDescription) {
  Setting whims("SIMGPU_WHIMS", "profile=hardware; doorbell=9us; nvml_seed=3");
  simgpu::NodeConfig config;
  std::string error;
  ASSERT_TRUE(simgpu::parse_node_config("doorbell=1us\ndevice", &config, &error));
  EXPECT_EQ(3000u, config.devices[0].launch_ns);
  EXPECT_EQ(1000u, config.devices[0].doorbell_ns);
  EXPECT_EQ(3u, config.nvml.seed);
  EXPECT_FALSE(simgpu::parse_node_config("bell=1us", &config, &error));
  EXPECT_EQ("line 1: bell=1us: no such key", error);
  {
    Setting node("SIMGPU_NODE", directory("whims"));
    Setting description("SIMGPU_CONFIG", "memory=1040MiB; reserved=16MiB; context=64MiB");
    Setting blocks("SIMGPU_WHIMS", "block=16MiB");
    Client client;
    client.must("ctx 0");
    client.must("alloc 1");
    EXPECT_EQ(80 * kMiB, held_bytes(0, client.pid())) << "the node that a client starts has them, too";
  }
  Setting wrong("SIMGPU_WHIMS", "profile=ideal; bell=2us");
  EXPECT_FALSE(simgpu::parse_node_config("", &config, &error));
  EXPECT_EQ("SIMGPU_WHIMS: line 2: bell=2us: no such key", error);
}

TEST(Nodes, AMistakeInTheDescriptionIsToldAndNothingStarts) {
  Setting node("SIMGPU_NODE", directory("mistake"));
  Setting config("SIMGPU_CONFIG", "memory=much");
  Client client;
  EXPECT_EQ("100", client.ask("init"));
}

TEST(Nodes, ExecGivesTheMemoryBack) {
  Client client;
  client.must("ctx 0");
  client.tell("exec");
  EXPECT_TRUE(eventually([&] { return held_bytes(0, client.pid()) == 0; }));
}

}  // namespace
