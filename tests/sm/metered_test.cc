// An SM limit on the simulated GPU, in real time: every way to launch is metered, and waiting for budget is like waiting
// in the driver. How exactly a share is kept is shown by model_test and the benchmarks; here a machine may be busy.
#include <chrono>

#include "hooks/own_node.h"

namespace vgpu::test {

using namespace region;
namespace {

using Clock = std::chrono::steady_clock;

long ms_since(Clock::time_point start) {
  return static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count());
}

class MeteredTest : public HooksTest {
 protected:
  void share(std::uint32_t percent) {
    std::vector<DeviceSpec> devices = devices_of(node(), kDevice / 2);
    for (DeviceSpec &device : devices) device.sm_percent = percent;
    make_region(devices);
  }
  // What 100 ms of kernels take, from the first launch to the end of the last.
  static long ms_for(Program &program, const std::string &launches) {
    const auto start = Clock::now();
    program.must("call " + launches);
    program.must("call cuCtxSynchronize");
    return ms_since(start);
  }
  void change_share(std::uint32_t percent) {
    LimitChange change;
    change.sm_percent = percent;
    const Error error = change_limits(region().c_str(), Trust::root_or_self, change);
    ASSERT_FALSE(error) << error.text;
  }
  std::uint64_t throttled_ms() const {
    Snapshot snapshot;
    EXPECT_FALSE(Snapshot::read(region().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
    return snapshot.device(0).throttled_ns / 1'000'000;
  }
};

// ---- every way to launch --------------------------------------------------------------------------------------------

class EveryLaunchTest : public MeteredTest, public testing::WithParamInterface<const char *> {};

TEST_P(EveryLaunchTest, IsHeldToTheShare) {
  share(20);
  const auto program = start_on(0);
  // 500 ms at a fifth of the time, less what a job may save, 50 ms of it.
  EXPECT_GE(ms_for(*program, std::string(GetParam()) + " 5ms 20"), 400);
  EXPECT_GE(throttled_ms(), 300u);
}

INSTANTIATE_TEST_SUITE_P(Symbols, EveryLaunchTest,
                         testing::Values("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx",
                                         "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel",
                                         "cuLaunchCooperativeKernel_ptsz", "cuLaunch", "cuLaunchGrid",
                                         "cuLaunchGridAsync"),
                         [](const auto &info) { return std::string(info.param); });

TEST_F(MeteredTest, ALaunchOnTwoDevicesIsHeldToTheShareOfEach) {
  share(20);
  const auto program = start();
  program->must("init");
  const auto start = Clock::now();
  program->must("call cuLaunchCooperativeKernelMultiDevice 5ms 20");
  EXPECT_GE(ms_since(start), 400);
  program->finish();
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(region().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  for (unsigned dev = 0; dev < 2; ++dev) EXPECT_GE(snapshot.device(dev).launches, 15u) << dev;
}

TEST_F(MeteredTest, AGraphIsHeldToTheShare) {
  share(20);
  const auto program = start_on(0);
  const std::string exec = std::to_string(program->must("call kernel_graph 5ms"));
  const auto start = Clock::now();
  for (int i = 0; i < 20; ++i) program->must("call cuGraphLaunch " + exec + " 0");
  program->must("call cuCtxSynchronize");
  EXPECT_GE(ms_since(start), 400);
}

TEST_F(MeteredTest, EveryDeviceOfTheJob) {
  share(20);
  for (unsigned device = 0; device < 2; ++device) {
    EXPECT_GE(ms_for(*start_on(device), "cuLaunchKernel 5ms 20"), 400) << device;
  }
}

// Those that threads pay for from what they took before: the driver is asked where each of them is.
TEST_F(MeteredTest, ShortLaunchesToo) {
  share(20);
  EXPECT_GE(ms_for(*start_on(1), "cuLaunchKernel 100us 1000"), 400);
}

// Where there is only one device it is not asked.
TEST_F(MeteredTest, ShortLaunchesWhereOnlyOneDeviceIsSeen) {
  share(20);
  const auto program = start({"CUDA_VISIBLE_DEVICES=1"});
  program->make("cuCtxCreate_v2", 0u);
  EXPECT_GE(ms_for(*program, "cuLaunchKernel 100us 1000"), 400);
  change_share(100);
  EXPECT_LT(ms_for(*program, "cuLaunchKernel 100us 1000"), 400) << "half a second less";
}

TEST_F(MeteredTest, WithAllOfTheTimeNothingIs) {
  share(100);
  const auto program = start_on(0);
  ms_for(*program, "cuLaunchKernel 5ms 20");
  EXPECT_EQ(throttled_ms(), 0u);
}

TEST_F(MeteredTest, RanksShareOneBudget) {
  share(20);
  const auto first = start_on(0), second = start_on(0);
  const auto start = Clock::now();
  for (Program *program : {first.get(), second.get()}) ASSERT_TRUE(program->tell("call cuLaunchKernel 5ms 10"));
  EXPECT_EQ(first->finish(), 0);
  EXPECT_EQ(second->finish(), 0);
  EXPECT_GE(ms_since(start), 400) << "as one rank with all of it";
}

// ---- what the host does ---------------------------------------------------------------------------------------------

class LoadingTest : public OwnNodeTest {
 protected:
  // How long 40 kernels of 1 ms take that are launched once, each of which the driver loads in 20 ms.
  static double ms_for_new_kernels(Program &program) {
    program.make("cuCtxCreate_v2", 0);
    return static_cast<double>(program.must("call new_kernels 40 1ms")) / 1000;
  }
};

TEST_F(LoadingTest, LoadsAreNotCharged) {
  sm_percent_ = 50;
  make("profile=hardware; function_time=20ms", 8192 * kMiB);
  Program alone(node(), "");
  alone.must("init");
  const double native = ms_for_new_kernels(alone);
  EXPECT_LT(ms_for_new_kernels(start()), 1.5 * native) << "twice as long, if loads were the device's time";
}

// What was loaded before is measured with its first launch, and the second one pays for it.
TEST_F(LoadingTest, TheKernelsAre) {
  sm_percent_ = 50;
  make("profile=hardware; function_time=20ms", 8192 * kMiB);
  Program &program = start();
  program.make("cuCtxCreate_v2", 0);
  for (const char *launches : {"launches", "library_launches"}) {
    const std::string launch = std::string("call ") + launches + " 0 200ms 1";
    program.must(launch);
    program.must("call cuCtxSynchronize");
    EXPECT_GE(program.must(launch) / 1000, 100u) << launches;
    program.must("call cuCtxSynchronize");
    sleep_ms(500);
  }
}

// However long the driver takes to launch them, and however new they are.
TEST_F(LoadingTest, GraphsAre) {
  sm_percent_ = 50;
  make("profile=hardware", 8192 * kMiB);
  node().set_faults("cuGraphLaunch delay 5");
  Program &program = start();
  program.make("cuCtxCreate_v2", 0);
  std::vector<std::string> graphs(8);
  for (std::string &graph : graphs) graph = text(program.must("call kernel_graph 20ms"));
  const auto begin = Clock::now();
  for (const std::string &graph : graphs) program.must("call cuGraphLaunch " + graph + " 0");
  program.must("call cuCtxSynchronize");
  EXPECT_GE(ms_since(begin), 250) << "160 ms, if they were free";
}

// An older driver has no cuFuncLoad: then it is the launch that takes long.
TEST_F(LoadingTest, NorAreTheyByADriverThatLoadsOnlyWithTheLaunch) {
  sm_percent_ = 50;
  make("profile=hardware; function_time=20ms", 8192 * kMiB);
  node().set_faults("cuFuncLoad fail 801");
  Program alone(node(), "");
  alone.must("init");
  const double native = ms_for_new_kernels(alone);
  EXPECT_LT(ms_for_new_kernels(start()), 1.5 * native);
}

// ---- while it waits -------------------------------------------------------------------------------------------------

TEST_F(MeteredTest, ARankThatWaitsCanBeEnded) {
  share(1);
  const auto program = start_on(0);
  ASSERT_TRUE(program->tell("call cuLaunchKernel 5ms 100"));  // for 50 s
  sleep_ms(200);
  const auto start = Clock::now();
  program->end(SIGTERM);
  EXPECT_LT(ms_since(start), 1000);
}

TEST_F(MeteredTest, SignalsDisturbNoWait) {
  share(20);
  const auto program = start_on(0);
  program->must("call alarms 5");
  EXPECT_GE(ms_for(*program, "cuLaunchKernel 5ms 20"), 400) << "no wait is cut short";
  EXPECT_GE(program->must("call alarms 0"), 20u) << "nor are signals held back";
}

TEST_F(MeteredTest, ALimitThatIsRaisedWakesWhoWaits) {
  share(1);
  const auto program = start_on(0);
  ms_for(*program, "cuLaunchKernel 5ms 1");                  // what is known is charged at once
  ASSERT_TRUE(program->tell("call cuLaunchKernel 5ms 20"));  // for 10 s
  sleep_ms(300);
  change_share(100);
  const auto start = Clock::now();
  EXPECT_EQ(program->finish(), 0);
  EXPECT_LT(ms_since(start), 1500) << "100 ms of kernels are left";
}

}  // namespace
}  // namespace vgpu::test
