// Faults on demand: the rules, what they do to a client, and a device that falls off the bus.
#include <nvml.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>

#include "simgpu/node/faults.h"
#include "support.h"

namespace {

using simgpu::FaultRule;

const std::string kUnknown = std::to_string(CUDA_ERROR_UNKNOWN);

std::string faults_file() { return std::string(getenv("SIMGPU_NODE")) + "/faults"; }

// As editors do it: clients never see half a file.
void write_faults(const std::string &rules) {
  std::ofstream(faults_file() + ".new") << rules << '\n';
  ASSERT_EQ(0, rename((faults_file() + ".new").c_str(), faults_file().c_str()));
}

double milliseconds_of(const std::function<void()> &work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

class FaultTest : public testing::Test {
 protected:
  void TearDown() override {
    unlink(faults_file().c_str());
    ctl("repair 0");
  }
  // A client whose environment asks for these faults.
  static std::unique_ptr<Client> client_with(const std::string &rules) {
    setenv("SIMGPU_FAULTS", rules.c_str(), 1);
    auto client = std::make_unique<Client>();
    unsetenv("SIMGPU_FAULTS");
    return client;
  }
  static int end_of(Client &client, const std::string &line) {
    client.tell(line);
    return client.wait_for_end();
  }
};

TEST(FaultRules, SayWhatTheyMean) {
  std::deque<FaultRule> rules;
  std::string error;
  simgpu::parse_fault_rules(
      "cuMemAlloc_v2@3 fail 2; cuInit@2+ delay 50 # slow\n\n  nvml* fail 999\ncuMemFree_v2 kill before;cuMemFree kill "
      "after;",
      &rules, &error);
  EXPECT_EQ("", error);
  ASSERT_EQ(5u, rules.size());
  EXPECT_EQ("cuMemAlloc_v2", rules[0].function);
  EXPECT_EQ(3u, rules[0].first);
  EXPECT_EQ(3u, rules[0].last);
  EXPECT_EQ(FaultRule::Action::kFail, rules[0].action);
  EXPECT_EQ(2u, rules[0].number);
  EXPECT_EQ(2u, rules[1].first);
  EXPECT_EQ(UINT64_MAX, rules[1].last);
  EXPECT_EQ(FaultRule::Action::kDelay, rules[1].action);
  EXPECT_EQ(50u, rules[1].number);
  EXPECT_EQ(1u, rules[2].first);
  EXPECT_TRUE(rules[2].is_about("nvmlInit_v2"));
  EXPECT_FALSE(rules[2].is_about("cuInit"));
  EXPECT_FALSE(rules[0].is_about("cuMemAlloc"));
  EXPECT_FALSE(rules[4].is_about("cuMemFree_v2"));
  EXPECT_EQ(FaultRule::Action::kKillBefore, rules[3].action);
  EXPECT_EQ(FaultRule::Action::kKillAfter, rules[4].action);
}

TEST(FaultRules, ThatMakeNoSenseAreLeftOutAndSaid) {
  for (const char *bad : {"cuInit", "cuInit fail", "cuInit fail 0", "cuInit fail two", "cuInit@0 fail 2",
                          "cuInit@ fail 2", "cuInit@-1 fail 2", "cuInit@1x fail 2", "cuInit delay -1", "cuInit kill",
                          "cuInit kill now", "cuInit break 2", "cuInit fail 2 3", "@2 fail 2", "fail 2"}) {
    std::deque<FaultRule> rules;
    std::string error;
    simgpu::parse_fault_rules(std::string("cuInit fail 3;") + bad, &rules, &error);
    EXPECT_EQ(1u, rules.size()) << bad;
    EXPECT_NE("", error) << bad;
  }
}

TEST_F(FaultTest, TheNthCallFails) {
  auto client = client_with("cuMemAlloc_v2@2 fail 2");
  client->must("ctx 0");
  client->must("alloc 4194304");
  size_t before = held_bytes(0, client->pid());
  EXPECT_EQ("2", client->ask("alloc 4194304").substr(0, 1));
  EXPECT_EQ(before, held_bytes(0, client->pid())) << "a call that fails does nothing";
  client->must("alloc 4194304");
}

TEST_F(FaultTest, FromTheNthCallOn) {
  auto client = client_with("cuMemAlloc_v2@2+ fail 719; cuMemGetInfo_v2 fail 1");
  client->must("ctx 0");
  client->must("alloc 4194304");
  for (int i = 0; i < 3; i++) EXPECT_EQ("719", client->ask("alloc 4194304").substr(0, 3));
  EXPECT_EQ("1", client->ask("info").substr(0, 1)) << "the other rule holds, too";
}

TEST_F(FaultTest, ABeginningOfNamesIsEnough) {
  auto client = client_with("cuMemAlloc* fail 2");
  client->must("ctx 0");
  EXPECT_EQ("2", client->ask("alloc 4194304").substr(0, 1));
  EXPECT_EQ("2", client->ask("async 4194304").substr(0, 1));
}

TEST_F(FaultTest, ACallIsDelayed) {
  auto client = client_with("cuMemAlloc_v2@2 delay 500");
  client->must("ctx 0");
  EXPECT_LT(milliseconds_of([&] { client->must("alloc 4194304"); }), 500);
  EXPECT_GE(milliseconds_of([&] { client->must("alloc 4194304"); }), 500);
}

TEST_F(FaultTest, KilledInsideACall) {
  for (const char *when : {"before", "after"}) {
    auto client = client_with(std::string("cuMemAlloc_v2@2 kill ") + when);
    pid_t pid = client->pid();
    client->must("ctx 0");
    client->must("alloc 4194304");
    int status = end_of(*client, "alloc 4194304");
    ASSERT_TRUE(WIFSIGNALED(status)) << when;
    EXPECT_EQ(SIGKILL, WTERMSIG(status));
    EXPECT_TRUE(eventually([&] { return held_bytes(0, pid) == 0; })) << when;
  }
}

// The difference between the two shows where the call reaches another process.
TEST_F(FaultTest, BeforeOrAfterTheEffect) {
  for (bool after : {false, true}) {
    auto client = client_with(std::string("cuMemsetD8_v2 kill ") + (after ? "after" : "before"));
    Client other;
    other.must("ctx 0");
    std::string address = other.must("alloc 4194304");
    other.must("fill " + address + " 1 16");
    client->must("ctx 0");
    std::string theirs = client->must("ipcopen " + other.must("ipcget " + address));
    end_of(*client, "fill " + theirs + " 2 16");
    EXPECT_EQ(after ? "2" : "1", other.must("peek " + address));
  }
}

TEST_F(FaultTest, TheFileHitsARunningProcess) {
  Client client;
  client.must("ctx 0");
  client.must("alloc 4194304");
  auto answers = [&](const std::string &code) {
    return eventually([&] { return client.ask("info").substr(0, code.size()) == code; });
  };
  write_faults("cuMemGetInfo_v2 fail 999");
  EXPECT_TRUE(answers("999"));
  write_faults("# another one\ncuMemGetInfo_v2 fail 700");
  EXPECT_TRUE(answers("700"));
  ASSERT_EQ(0, unlink(faults_file().c_str()));
  EXPECT_TRUE(answers("0"));
  write_faults("cuMemGetInfo_v2 fail 999");
  EXPECT_TRUE(answers("999"));
}

TEST_F(FaultTest, TheFileIsThereForTheFirstCall) {
  write_faults("cuInit fail 3");
  Client client;
  EXPECT_EQ("3", client.ask("ctx 0").substr(0, 1));
}

TEST_F(FaultTest, NvmlFailsAndIsSlow) {
  ASSERT_EQ(NVML_SUCCESS, nvmlInit_v2());
  nvmlDevice_t device;
  nvmlMemory_t memory;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(0, &device));
  write_faults("nvmlDeviceGetMemoryInfo fail 15");
  EXPECT_TRUE(eventually([&] { return nvmlDeviceGetMemoryInfo(device, &memory) == NVML_ERROR_GPU_IS_LOST; }));
  unsigned count;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetCount_v2(&count));
  write_faults("nvmlDeviceGet* delay 100");
  EXPECT_TRUE(eventually([&] { return nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS; }));
  EXPECT_GE(milliseconds_of([&] { nvmlDeviceGetCount_v2(&count); }), 100);
  EXPECT_EQ(NVML_SUCCESS, nvmlShutdown());
}

TEST_F(FaultTest, ARuleAboutNothingIsSaid) {
  testing::internal::CaptureStderr();
  {
    auto client = client_with("cuMemAllok fail 2; nvmlDeviceGetMemoryInfo fail 3");
    client->must("ctx 0");
  }
  EXPECT_EQ("simgpu: SIMGPU_FAULTS: cuMemAllok: no such function, or one that is not simulated\n",
            testing::internal::GetCapturedStderr());
}

TEST_F(FaultTest, ADeviceFallsOffTheBus) {
  Client victim, neighbour;
  victim.must("ctx 0");
  std::string address = victim.must("alloc 4194304");
  neighbour.must("ctx 1");
  ctl("lose 0");
  EXPECT_NE(std::string::npos, ctl("devices").find("lost"));
  for (const std::string &line : {std::string("alloc 4194304"), "free " + address, std::string("info"),
                                  std::string("sync"), std::string("ctx 0")}) {
    EXPECT_EQ(kUnknown, victim.ask(line).substr(0, kUnknown.size())) << line;
  }
  neighbour.must("alloc 4194304");
  Client late;
  EXPECT_EQ(kUnknown, late.ask("ctx 0").substr(0, kUnknown.size()));
  ASSERT_EQ(NVML_SUCCESS, nvmlInit_v2());
  nvmlDevice_t device;
  EXPECT_EQ(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetHandleByIndex_v2(0, &device));
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(1, &device));
  EXPECT_EQ(NVML_SUCCESS, nvmlShutdown());

  ctl("repair 0");
  EXPECT_EQ(kUnknown, victim.ask("info").substr(0, kUnknown.size())) << "for good, in a process that lost it";
  Client fresh;
  fresh.must("ctx 0");
  fresh.must("alloc 4194304");
  pid_t pid = victim.pid();
  victim.close_input();
  EXPECT_EQ(0, victim.wait_for_end());
  EXPECT_TRUE(eventually([&] { return held_bytes(0, pid) == 0; }));
}

}  // namespace
