// Several processes on one node: whose memory it is, and what becomes of it when its owner goes.
#include <dirent.h>
#include <nvml.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>

#include "support.h"

namespace {

std::string path(const char *name) { return std::string(getenv("SIMGPU_NODE")) + "/" + name; }

std::vector<nvmlProcessInfo_v1_t> listed(unsigned device) {
  nvmlDevice_t handle;
  std::vector<nvmlProcessInfo_v1_t> out(64);
  unsigned count = 64;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(device, &handle));
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses(handle, &count, out.data()));
  out.resize(count);
  return out;
}

bool is_listed(unsigned device, pid_t pid, unsigned long long *bytes = nullptr) {
  for (const nvmlProcessInfo_v1_t &info : listed(device))
    if (static_cast<pid_t>(info.pid) == pid) {
      if (bytes != nullptr) *bytes = info.usedGpuMemory;
      return true;
    }
  return false;
}

class Processes : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(NVML_SUCCESS, nvmlInit_v2()); }
  void TearDown() override {
    EXPECT_TRUE(eventually([] { return held_bytes(0) + held_bytes(1) == 0; })) << ctl("usage");
    nvmlShutdown();
  }
};

TEST_F(Processes, SeeTheSameDevice) {
  Client a, b;
  a.must("ctx 0");
  a.must("alloc 104857600");
  b.must("ctx 0");
  std::istringstream info(b.must("info"));
  size_t free, total;
  info >> free >> total;
  EXPECT_EQ(kDeviceBytes, total);
  EXPECT_EQ(kDeviceBytes - 2 * kContextBytes - 100 * kMiB, free);
  EXPECT_EQ("2 0", b.ask("alloc " + std::to_string(free + 1)));
  a.must("popctx");
  b.must("alloc " + std::to_string(free + kContextBytes + 100 * kMiB));
}

TEST_F(Processes, SigkillGivesEverythingBack) {
  Client victim;
  victim.must("ctx 0");
  victim.must("ctx 1");
  victim.must("alloc 100000000");
  victim.must("alloc 1000");
  victim.must("async 50000000");
  victim.must("create 4194304");
  victim.must("module");
  EXPECT_LT(2 * kContextBytes + 150 * kMiB, held_bytes(0, victim.pid()) + held_bytes(1, victim.pid()));
  victim.kill_now();
  EXPECT_TRUE(eventually([] { return held_bytes(0) + held_bytes(1) == 0; }));
}

TEST_F(Processes, AnOrdinaryExitDoesToo) {
  Client client;
  client.must("ctx 0");
  client.must("alloc 100000000");
  client.close_input();
  EXPECT_EQ(0, client.wait_for_end());
  EXPECT_TRUE(eventually([] { return held_bytes(0) == 0; }));
}

TEST_F(Processes, KilledInMidAllocationNothingLeaks) {
  for (int round = 0; round < 15; round++) {
    Client a, b;
    for (Client *c : {&a, &b}) {
      c->must("ctx 0");
      c->must("storm 50000000");
    }
    usleep(10000 + round * 1000);
    a.kill_now();
    b.kill_now();
    EXPECT_TRUE(eventually([] { return held_bytes(0) == 0; })) << ctl("usage") << ctl("devices");
    // The owner words, not only the counts, must be clear.
    EXPECT_EQ("", ctl("blocks"));
  }
}

TEST_F(Processes, TwoWhoTogetherAskTooMuchDoNotBothFail) {
  Client a, b;
  a.must("ctx 0");
  b.must("ctx 0");
  size_t most = (kDeviceBytes - 2 * kContextBytes) * 6 / 10;
  for (int round = 0; round < 20; round++) {
    a.tell("alloc " + std::to_string(most));
    b.tell("alloc " + std::to_string(most));
    std::string one = a.answer(), two = b.answer();
    bool first = one[0] == '0', second = two[0] == '0';
    EXPECT_TRUE(first != second) << one << " / " << two;
    if (first) a.must("free " + one.substr(2));
    if (second) b.must("free " + two.substr(2));
  }
}

TEST_F(Processes, NvmlListsByPidAfterTheDelay) {
  Client client;
  client.must("init");
  EXPECT_FALSE(is_listed(0, client.pid()));
  client.must("ctx 1");
  EXPECT_FALSE(is_listed(1, client.pid())) << "visible at once, although the node says ten minutes";
  client.must("ctx 0");
  EXPECT_TRUE(eventually([&] { return is_listed(0, client.pid()); }));
  EXPECT_FALSE(is_listed(1, client.pid()));
  unsigned long long bytes = 0;
  client.must("alloc 10485760");
  EXPECT_TRUE(is_listed(0, client.pid(), &bytes));
  EXPECT_EQ(kContextBytes + 10 * kMiB, bytes);
  client.must("popctx");
  EXPECT_FALSE(is_listed(0, client.pid()));
}

TEST_F(Processes, NvmlListsWhoHoldsMemoryWithoutAContext) {
  Client client;
  client.must("ctx 0");
  std::string handle = client.must("create 4194304");
  EXPECT_TRUE(eventually([&] { return is_listed(0, client.pid()); }));
  client.must("popctx");
  unsigned long long bytes = 0;
  EXPECT_TRUE(is_listed(0, client.pid(), &bytes)) << "its memory is nobody's";
  EXPECT_EQ(4 * kMiB, bytes);
  // Who is visible does not vanish again because he makes a context.
  client.must("ctx 0");
  EXPECT_TRUE(is_listed(0, client.pid()));
  client.must("popctx");
  client.must("release " + handle);
  EXPECT_FALSE(is_listed(0, client.pid()));
}

TEST_F(Processes, AndByItsHostPidFromWithinANamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a PID namespace";
  ctl("usage");  // the node must have been started outside the namespace
  Client client(true);
  client.must("ctx 0");
  EXPECT_EQ("1", client.must("pid"));
  // The client is the only child of `unshare`, which is the process we started.
  std::string children =
      "/proc/" + std::to_string(client.pid()) + "/task/" + std::to_string(client.pid()) + "/children";
  FILE *file = fopen(children.c_str(), "re");
  ASSERT_NE(nullptr, file);
  int pid = 0;
  EXPECT_EQ(1, fscanf(file, "%d", &pid));
  fclose(file);
  EXPECT_TRUE(eventually([&] { return is_listed(0, pid); }));
  EXPECT_EQ(kContextBytes, held_bytes(0, pid));
}

TEST_F(Processes, IpcMemoryIsCountedOnceAndOutlivesItsMaker) {
  auto maker = std::make_unique<Client>();
  Client user;
  maker->must("ctx 0");
  user.must("ctx 0");
  std::string p = maker->must("alloc 10485760");
  maker->must("fill " + p + " 33 10485760");
  std::string handle = maker->must("ipcget " + p);
  EXPECT_EQ("201", maker->ask("ipcopen " + handle).substr(0, 3));
  std::string q = user.must("ipcopen " + handle);
  EXPECT_EQ("33", user.must("peek " + q));
  user.must("fill " + q + " 44 10");
  EXPECT_EQ("44", maker->must("peek " + p));
  EXPECT_EQ(kContextBytes, held_bytes(0, user.pid()));
  EXPECT_EQ(kContextBytes + 10 * kMiB, held_bytes(0, maker->pid()));
  maker->kill_now();
  EXPECT_TRUE(eventually([&] { return held_bytes(0) == kContextBytes + 10 * kMiB; }));
  EXPECT_EQ("44", user.must("peek " + q));
  EXPECT_EQ(kContextBytes + 10 * kMiB, held_bytes(0, user.pid()));
  user.must("ipcclose " + q);
  EXPECT_EQ(kContextBytes, held_bytes(0));
}

TEST_F(Processes, AnOpenedPieceOfASlabIsTheSameBytes) {
  Client maker, user;
  maker.must("ctx 0");
  user.must("ctx 0");
  maker.must("alloc 1000");
  std::string p = maker.must("alloc 1000");
  maker.must("fill " + p + " 7 1000");
  std::string q = user.must("ipcopen " + maker.must("ipcget " + p));
  EXPECT_EQ("7", user.must("peek " + q));
  user.must("ipcclose " + q);
}

TEST_F(Processes, DescriptorsCarryPhysicalMemory) {
  Client user;
  user.must("ctx 0");
  user.must("listen " + path("fd.sock"));
  auto maker = std::make_unique<Client>();
  maker->must("ctx 0");
  std::string handle = maker->must("create 4194304");
  std::string p = maker->must("map " + handle + " 4194304");
  maker->must("fill " + p + " 55 4194304");
  maker->must("sendhandle " + path("fd.sock") + " " + handle);
  maker->kill_now();
  // Nobody has it now but a descriptor in a socket's queue.
  EXPECT_TRUE(eventually([&] { return held_bytes(0) == kContextBytes + 4 * kMiB; })) << ctl("usage");
  std::string imported = user.must("recvhandle");
  std::string q = user.must("map " + imported + " 4194304");
  EXPECT_EQ("55", user.must("peek " + q));
  EXPECT_TRUE(eventually([&] { return held_bytes(0, user.pid()) == kContextBytes + 4 * kMiB; })) << ctl("usage");
}

TEST_F(Processes, PoolsAreSharedPointerByPointer) {
  Client user, maker;
  user.must("ctx 0");
  user.must("listen " + path("pool.sock"));
  maker.must("ctx 0");
  std::string pool = maker.must("poolnew");
  maker.must("sendpool " + path("pool.sock") + " " + pool);
  std::string imported = user.must("recvpool");
  EXPECT_EQ("1 0", user.ask("poolalloc " + imported + " 1000"));
  std::string p = maker.must("poolalloc " + pool + " 1000");
  maker.must("fill " + p + " 66 1000");
  std::string q = user.must("importptr " + imported + " " + maker.must("exportptr " + p));
  EXPECT_EQ("66", user.must("peek " + q));
  EXPECT_EQ(kContextBytes, held_bytes(0, user.pid()));
  user.must("asyncfree " + q);
  EXPECT_EQ("1 0", user.ask("peek " + q));
}

TEST_F(Processes, AForkedChildCannotUseTheDriverButHoldsItsMemory) {
  Client client;
  client.must("ctx 0");
  EXPECT_EQ("3", client.must("forkcheck"));  // CUDA_ERROR_NOT_INITIALIZED
  pid_t child = std::stoi(client.must("fork"));
  Client later;
  later.must("ctx 1");
  client.kill_now();
  later.kill_now();
  // The node learns of deaths in their order: having seen the later one it has seen the first.
  EXPECT_TRUE(eventually([] { return held_bytes(1) == 0; }));
  EXPECT_EQ(kContextBytes, held_bytes(0)) << "given back although a descriptor is still open";
  kill(child, SIGKILL);
  EXPECT_TRUE(eventually([] { return held_bytes(0) == 0; }));
}

TEST_F(Processes, WhoClosesItsDescriptorsLosesItsDevice) {
  Client careless, other;
  careless.must("ctx 0");
  careless.must("alloc 10000000");
  careless.must("closefds");
  EXPECT_TRUE(eventually([] { return held_bytes(0) == 0; }));
  other.must("ctx 0");                                 // takes the slot that became free
  EXPECT_EQ("304 0", careless.ask("alloc 10000000"));  // CUDA_ERROR_OPERATING_SYSTEM
  EXPECT_EQ(kContextBytes, held_bytes(0));
}

TEST_F(Processes, AStoppedClientHoldsNobodyUp) {
  Client stopped, other;
  stopped.must("ctx 0");
  stopped.must("storm 400000000");  // up to four of these at a time: often more than there is
  other.must("ctx 0");
  // Stopped wherever it is, perhaps half-way through a claim, it may have the memory, but not keep the other waiting.
  for (int i = 0; i < 60; i++) {
    kill(stopped.pid(), SIGSTOP);
    auto start = std::chrono::steady_clock::now();
    std::string got = other.ask("alloc 500000000");
    auto took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took, std::chrono::seconds(3));
    EXPECT_TRUE(got[0] == '0' || got == "2 0") << got;
    if (got[0] == '0') other.must("free " + got.substr(2));
    kill(stopped.pid(), SIGCONT);
    usleep(300 * (i % 30));
  }
  stopped.kill_now();
  EXPECT_TRUE(eventually([] { return held_bytes(0) == kContextBytes; }));
  other.must("alloc " + std::to_string(kDeviceBytes - kContextBytes));
}

TEST_F(Processes, ABrokenDeviceLeavesTheOtherAlone) {
  Client client;
  client.must("ctx 0");
  ctl("break 0");
  nvmlDevice_t handle;
  EXPECT_EQ(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetHandleByIndex_v2(0, &handle));
  EXPECT_EQ("46 0", client.ask("alloc 1000"));  // CUDA_ERROR_DEVICE_UNAVAILABLE
  client.must("ctx 1");
  client.must("alloc 1000");
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(1, &handle));
  ctl("repair 0");
}

TEST_F(Processes, ThirtyTwoStartAndEndAtOnce) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 32; i++) clients.push_back(std::make_unique<Client>());
  for (auto &c : clients) c->tell("ctx " + std::to_string(&c - clients.data() < 14 ? 0 : 1));
  int got = 0;
  for (auto &c : clients) got += c->answer() == "0";
  EXPECT_EQ(14 + 16, got);  // 16 contexts fill a device
  for (auto &c : clients) kill(c->pid(), SIGKILL);
  clients.clear();
  EXPECT_TRUE(eventually([] { return held_bytes(0) + held_bytes(1) == 0; }));
}

}  // namespace
