// The probe, with an NVML that misbehaves in every way we know.
#include "node/probe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "node/processes.h"
#include "region/support.h"
#include "utils/vgpu-probe/nvml_probe.h"

namespace vgpu::node {
namespace {

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return std::distance(begin(entries), end(entries));
}

class Probe : public ::testing::Test {
 protected:
  Probe() {
    options_.program = VGPU_BUILD_DIR "/utils/vgpu-probe/vgpu-probe";
    options_.nvml = VGPU_BUILD_DIR "/tests/vgpu-probe/fake_nvml.so";
    setenv("FAKE_NVML_RECORD", record().c_str(), 1);
    // hwloc looks at a machine with thousands of large buffers, each of which costs a sanitizer a millisecond.
    setenv("HWLOC_XMLFILE", VGPU_SOURCE_DIR "/tests/vgpu-probe/topology.xml", 1);
  }
  ~Probe() override {
    unsetenv("FAKE_NVML");
    unsetenv("FAKE_NVML_RECORD");
    EXPECT_EQ(open_files(), files_at_start_) << "file descriptors left open";
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
    if (std::filesystem::exists(record())) {
      EXPECT_NE(kill(prober(), 0), 0) << "the process that used NVML is still there";
    }
  }

  Error run(const char *mode, Node *node) {
    setenv("FAKE_NVML", mode, 1);
    return probe_devices(options_, node);
  }
  void expect_error(const char *mode, Fault fault, const char *words) {
    Node node;
    node.devices.resize(3);
    const Error error = run(mode, &node);
    EXPECT_EQ(error.fault, fault) << error.text;
    EXPECT_NE(std::strncmp(error.text, "vgpu: ", 6), 0) << error.text;
    EXPECT_NE(std::strstr(error.text, words), nullptr) << error.text;
    EXPECT_EQ(node.devices.size(), 3u) << "changed by a failure";
  }

  std::string record() const { return directory_.path() + "/record"; }
  std::string recorded() const {
    std::ifstream file(record());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  pid_t prober() const { return std::stoi(recorded()); }

  test::TemporaryDirectory directory_;
  ProbeOptions options_;

 private:
  std::ptrdiff_t files_at_start_ = open_files();
};

TEST_F(Probe, FindsTheDevices) {
  Node node;
  node.fail_open = true;
  const Error error = run("", &node);
  ASSERT_FALSE(error) << error.text;
  EXPECT_TRUE(node.fail_open) << "that is not the probe's to change";
  EXPECT_TRUE(node.problems.empty());
  ASSERT_EQ(node.devices.size(), 2u);
  const NodeDevice &device = node.devices[1];
  EXPECT_EQ(device.gres_index, -1);
  EXPECT_EQ(device.minor, 8) << "not the index";
  EXPECT_EQ(device.device_file, "/dev/nvidia8");
  EXPECT_EQ(device.gpu_uuid, "GPU-00000002");
  EXPECT_STREQ(device.identity.uuid, "GPU-00000002");
  EXPECT_STREQ(device.identity.pci_bus_id, "10000:ab:02.0");
  EXPECT_EQ(device.identity.memory_bytes, std::uint64_t{40} << 30);
  EXPECT_EQ(device.identity.numa_node, -1) << "hwloc cannot know it";
  EXPECT_FALSE(device.is_mig());
}

TEST_F(Probe, NamesMigInstancesByTheirOwnUuid) {
  Node node;
  ASSERT_FALSE(run("mig", &node));
  ASSERT_EQ(node.devices.size(), 5u) << "four instances of the first GPU, and the second";
  for (unsigned i = 0; i < 4; ++i) {
    const NodeDevice &device = node.devices[i];
    EXPECT_TRUE(device.is_mig());
    EXPECT_EQ(device.identity.uuid, "MIG-00000" + std::to_string(101 + 2 * i));
    EXPECT_EQ(device.gpu_uuid, "GPU-00000001");
    EXPECT_EQ(device.minor, 7);
    EXPECT_EQ(device.identity.memory_bytes, std::uint64_t{5} << 30);
    EXPECT_STREQ(device.identity.pci_bus_id, "10000:ab:01.0");
  }
  EXPECT_STREQ(node.devices[4].identity.uuid, "GPU-00000002");
}

TEST_F(Probe, FindsTheDeviceFileOfAMigInstance) {
  const std::string instance = directory_.path() + "/gpu7/mig/gi3/ci1";
  std::filesystem::create_directories(instance);
  EXPECT_EQ(probe::mig_device_file(directory_.path(), 7, 3, 1), "");
  std::ofstream(instance + "/access") << "DeviceFileMinor: 42\nDeviceFileMode: 292\nDeviceFileModify: 1\n";
  EXPECT_EQ(probe::mig_device_file(directory_.path(), 7, 3, 1), "/dev/nvidia-caps/nvidia-cap42");
  EXPECT_EQ(probe::mig_device_file(directory_.path(), 7, 3, 0), "");
}

TEST_F(Probe, ALostGpuDoesNotTakeTheOthersWithIt) {
  Node node;
  ASSERT_FALSE(run("lost", &node));
  ASSERT_EQ(node.devices.size(), 1u);
  EXPECT_EQ(node.devices[0].gpu_uuid, "GPU-00000002");
  EXPECT_EQ(node.problems, std::vector<std::string>{"NVML cannot tell about GPU 0: GPU is lost"});
  ASSERT_FALSE(run("lost-late", &node));
  ASSERT_EQ(node.devices.size(), 1u);
  EXPECT_EQ(node.devices[0].gpu_uuid, "GPU-00000001");
  EXPECT_EQ(node.problems.size(), 1u);
}

TEST_F(Probe, KnowsWhatTheDriverLeaves) {
  Node node;
  ASSERT_FALSE(run("reserve", &node));
  ASSERT_EQ(node.devices.size(), 2u);
  EXPECT_EQ(node.driver, "580.95.05");
  EXPECT_EQ(node.devices[0].identity.memory_bytes, std::uint64_t{40} << 30);
  EXPECT_EQ(node.devices[0].usable_bytes, (std::uint64_t{40} << 30) - (600 << 20));
  EXPECT_EQ(node.devices[1].usable_bytes, std::uint64_t{40} << 30) << "never more than there is";
  for (const char *mode : {"", "all-reserved"}) {
    ASSERT_FALSE(run(mode, &node));
    EXPECT_EQ(node.devices[0].usable_bytes, 0u) << "not known";
  }
}

TEST_F(Probe, NoGpuIsNoError) {
  Node node;
  node.devices.resize(3);
  ASSERT_FALSE(run("none", &node));
  EXPECT_TRUE(node.devices.empty());
}

TEST_F(Probe, MoreThanARegionCanHaveIs) { expect_error("many", Fault::invalid, "65 GPUs"); }

TEST_F(Probe, AbsentNvml) {
  options_.nvml = "/nonexistent/libnvidia-ml.so.1";
  expect_error("", Fault::not_found, "NVML cannot be loaded: /nonexistent/libnvidia-ml.so.1");
}

TEST_F(Probe, SomethingElseInsteadOfNvml) {
  options_.nvml = "libc.so.6";
  expect_error("", Fault::foreign, "libc.so.6 is no NVML library");
}

TEST_F(Probe, FailingNvml) {
  expect_error("fail", Fault::system, "NVML does not start: Driver Not Loaded");
  expect_error("count", Fault::system, "NVML does not count the GPUs: GPU is lost");
}

TEST_F(Probe, HangingNvmlIsKilledAtTheDeadline) {
  options_.deadline_ms = 300;
  const test::Stopwatch stopwatch;
  expect_error("hang", Fault::timeout, "NVML did not answer within 300 ms; ");
  EXPECT_GE(stopwatch.wall_ms(), 299);
  EXPECT_LT(stopwatch.wall_ms(), 2500);
  EXPECT_NE(prober(), 0);
}

TEST_F(Probe, HangingNvmlDoesNotOutliveAProbeThatIsKilled) {
  std::thread killer([&] {
    while (recorded().find("LD_PRELOAD") == std::string::npos) test::sleep_ms(5);
    std::ifstream status("/proc/" + std::to_string(prober()) + "/status");
    std::string word;
    while (status >> word && word != "PPid:") continue;
    pid_t probe = 0;
    if (status >> probe && probe > 1) kill(probe, SIGKILL);
  });
  expect_error("hang", Fault::foreign, "does not answer as vgpu-probe does");
  killer.join();
  for (int waited = 0; waited < 2000 && kill(prober(), 0) == 0; waited += 5) test::sleep_ms(5);
}

TEST_F(Probe, CrashingNvml) {
  expect_error("crash", Fault::system, "NVML crashed (Segmentation fault)");
  EXPECT_FALSE(std::filesystem::exists("core"));
}

TEST_F(Probe, NvmlThatCallsExit) { expect_error("exit", Fault::system, "NVML ended the probe (status 3)"); }

TEST_F(Probe, NvmlThatTalksDoesNotSpoilTheAnswer) {
  Node node;
  const Error error = run("chatter", &node);
  ASSERT_FALSE(error) << error.text;
  EXPECT_EQ(node.devices.size(), 2u);
}

TEST_F(Probe, GivesTheDriverNothingOfTheCallers) {
  const std::string path = directory_.path() + "/a-socket-of-slurmd";
  const int leaky = open(path.c_str(), O_RDWR | O_CREAT, 0600);  // on purpose without O_CLOEXEC
  setenv("LD_PRELOAD", "/nonexistent/libvgpu.so", 1);
  Node node;
  const Error error = run("", &node);
  unsetenv("LD_PRELOAD");
  close(leaky);
  ASSERT_FALSE(error) << error.text;
  EXPECT_EQ(recorded().find(path), std::string::npos) << recorded();
  EXPECT_NE(recorded().find("LD_PRELOAD=\n"), std::string::npos) << recorded();
}

TEST_F(Probe, AsksThisMachineForItsTopology) {
  unsetenv("HWLOC_XMLFILE");
  Node node;
  const Error error = run("", &node);
  ASSERT_FALSE(error) << error.text;
  EXPECT_EQ(node.devices.size(), 2u);
}

TEST_F(Probe, BadTopology) {
#ifdef VGPU_HWLOC
  options_.hwloc_xml = "/nonexistent/topology.xml";
  expect_error("", Fault::system, "/nonexistent/topology.xml");
#else
  GTEST_SKIP() << "built without hwloc";
#endif
}

// ---- whatever the caller is like ------------------------------------------------------------------------------------

TEST_F(Probe, WhenTheCallerIgnoresItsChildren) {
  const auto old = signal(SIGCHLD, SIG_IGN);
  Node node;
  const Error error = run("", &node);
  EXPECT_FALSE(error) << error.text;
  options_.deadline_ms = 200;
  expect_error("hang", Fault::timeout, "did not answer");
  signal(SIGCHLD, old);
  EXPECT_EQ(node.devices.size(), 2u);
}

TEST_F(Probe, WhenTheCallerBlocksAllSignals) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  Node node;
  const Error error = run("crash", &node);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  EXPECT_NE(std::strstr(error.text, "crashed"), nullptr) << error.text;
}

TEST_F(Probe, WhenAnotherThreadReapsEverything) {
  std::atomic<bool> done = false;
  std::thread reaper([&] {
    while (!done) {
      waitpid(-1, nullptr, WNOHANG);
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 5; ++i) {
    Node node;
    const Error error = run("", &node);
    EXPECT_FALSE(error) << error.text;
    EXPECT_EQ(node.devices.size(), 2u);
  }
  options_.deadline_ms = 200;
  expect_error("hang", Fault::timeout, "did not answer");
  done = true;
  reaper.join();
}

TEST_F(Probe, FromSeveralThreadsAtOnce) {
  setenv("FAKE_NVML", "", 1);
  unsetenv("FAKE_NVML_RECORD");
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      Node node;
      if (!probe_devices(options_, &node) && node.devices.size() == 2) ++good;
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(good, 8);
}

TEST_F(Probe, WithClosedStandardStreams) {
  const pid_t child = test::spawn([&] {
    close(0);
    close(1);
    close(2);
    Node node;
    return run("", &node) || node.devices.size() != 2 ? 1 : 0;
  });
  EXPECT_TRUE(test::exited_with(test::wait_for(child), 0));
}

// ---- whatever the program is ----------------------------------------------------------------------------------------

// ---- a probe that stays ----------------------------------------------------------------------------------------------

TEST_F(Probe, AServerAnswersAgainAndAgainFromOneProcess) {
  setenv("FAKE_NVML_PROCESS", "4711 1048576", 1);
  ProbeServer server(options_);
  pid_t first = 0;
  for (int i = 0; i < 3; ++i) {
    std::string answer;
    const Error error = server.ask(&answer);
    ASSERT_FALSE(error) << error.text;
    std::vector<GpuProcess> processes;
    ASSERT_FALSE(parse_processes("here", answer, &processes)) << answer;
    ASSERT_FALSE(processes.empty());
    EXPECT_EQ(processes[0].pid, 4711);
    if (i == 0) first = prober();
    EXPECT_EQ(prober(), first);
    EXPECT_EQ(kill(first, 0), 0);
  }
  unsetenv("FAKE_NVML_PROCESS");
}

TEST_F(Probe, AServerThatHangsIsEndedAndAnotherOneIsAsked) {
  options_.deadline_ms = 3'000;
  ProbeServer server(options_);
  std::string answer = "before";
  setenv("FAKE_NVML", "hang", 1);
  const Error hung = server.ask(&answer);
  EXPECT_EQ(hung.fault, Fault::timeout) << hung.text;
  EXPECT_EQ(answer, "before");
  unsetenv("FAKE_NVML");
  EXPECT_FALSE(server.ask(&answer));
  EXPECT_NE(answer.find("end "), answer.npos);
}

TEST_F(Probe, AServerThatEndsIsStartedAgain) {
  ProbeServer server(options_);
  std::string answer;
  ASSERT_FALSE(server.ask(&answer));
  const pid_t first = prober();
  ASSERT_EQ(kill(first, SIGKILL), 0);
  // It may end before it is asked, or while it is.
  signal(SIGPIPE, SIG_IGN);
  EXPECT_TRUE(server.ask(&answer));
  ASSERT_FALSE(server.ask(&answer));
  EXPECT_NE(prober(), first);
  signal(SIGPIPE, SIG_DFL);
}

TEST_F(Probe, AServerWithoutNvmlSaysWhy) {
  options_.nvml = "/nowhere/libnvidia-ml.so.1";
  ProbeServer server(options_);
  std::string answer;
  const Error error = server.ask(&answer);
  EXPECT_EQ(error.fault, Fault::not_found) << error.text;
  EXPECT_NE(std::strstr(error.text, "NVML cannot be loaded"), nullptr) << error.text;
}

TEST_F(Probe, MissingProgram) {
  options_.program = "/nonexistent/vgpu-probe";
  expect_error("", Fault::system, "cannot start /nonexistent/vgpu-probe: No such file");
}

TEST_F(Probe, AnotherProgram) {
  for (const char *program : {"/bin/true", "/bin/echo", "/bin/false"}) {
    options_.program = program;
    expect_error("", Fault::foreign, "does not answer as vgpu-probe does");
  }
}

TEST_F(Probe, ProgramThatNeverEnds) {
  options_.program = directory_.path() + "/sleeps";
  std::ofstream(options_.program) << "#!/bin/sh\nexec sleep 60\n";
  chmod(options_.program.c_str(), 0755);
  options_.deadline_ms = 1;
  const test::Stopwatch stopwatch;
  expect_error("", Fault::timeout, "did not end within");
  EXPECT_LT(stopwatch.wall_ms(), 10'000);
}

}  // namespace
}  // namespace vgpu::node
