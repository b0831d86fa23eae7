// What a job's share makes of NVML's word about it: by which call it comes, and what if it is about others, or does not come.
#include <chrono>
#include <fstream>

#include "hooks/support.h"
#include "region/sm_words.h"
#include "runtime/utilisation_call.h"

namespace vgpu::test {

using namespace region;
namespace {

// ---- which call -----------------------------------------------------------------------------------------------------

using runtime::UtilisationCall;

class CallsTest : public testing::Test {
 protected:
  bool ask(std::uint64_t now_ns) {
    asked_.clear();
    return call_.ask(now_ns, [&](UtilisationCall::Which which) {
      asked_ += which == UtilisationCall::newer ? 'n' : 'o';
      return which == UtilisationCall::newer ? newer_ : older_;
    });
  }

  UtilisationCall call_{};
  bool newer_ = true, older_ = true;
  std::string asked_;
  std::uint64_t now_ = 1'000'000'000;
};

TEST_F(CallsTest, NewerCallFirst) {
  EXPECT_TRUE(ask(now_));
  EXPECT_EQ(asked_, "n");
}

TEST_F(CallsTest, WhatAnsweredIsAskedAgain) {
  newer_ = false;
  EXPECT_TRUE(ask(now_));
  EXPECT_EQ(asked_, "no");
  newer_ = true;
  EXPECT_TRUE(ask(now_ + 1));
  EXPECT_EQ(asked_, "o");
  older_ = false;
  EXPECT_TRUE(ask(now_ + 2));
  EXPECT_EQ(asked_, "on");
}

TEST_F(CallsTest, NeitherIsAskedAnewAfterAMinute) {
  newer_ = older_ = false;
  EXPECT_FALSE(ask(now_));
  EXPECT_EQ(asked_, "no");
  newer_ = true;
  EXPECT_FALSE(ask(now_ + UtilisationCall::kAskAgainNs - 1));
  EXPECT_EQ(asked_, "");
  EXPECT_TRUE(ask(now_ + UtilisationCall::kAskAgainNs));
  EXPECT_EQ(asked_, "n");
}

// ---- on a device ----------------------------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

// A node of the test's own with one device, and a job with a share of it.
class UtilisationTest : public testing::Test {
 protected:
  void make(const std::string &lines, std::uint32_t percent, double ratio = 1) {
    node_ = std::make_unique<Node>(
        ("memory=1024MiB; reserved=0; context=64MiB; visibility_ms=0; idle_ms=300;" + lines).c_str());
    std::vector<DeviceSpec> devices = devices_of(*node_, 512 * kMiB);
    devices[0].sm_percent = percent;
    RegionSpec spec = make_spec(devices);
    spec.launch_hooks = true;
    Error error = Region::create(directory_.path().c_str(), "7", spec);
    ASSERT_FALSE(error) << error.text;
    error = Region::attach(path().c_str(), Trust::root_or_self, &region_);
    ASSERT_FALSE(error) << error.text;
    device().trim = TrimWord{static_cast<std::uint64_t>(ratio * TrimWord::kOne), false, 0}.pack();
  }
  void TearDown() override {
    for (const auto &rank : ranks_) rank->end(SIGKILL);
    ranks_.clear();
    node_.reset();
  }

  // A rank that does this until the test ends.
  Program &start(const std::string &launches, const std::vector<std::string> &environment = {},
                 const std::vector<std::string> &wrapper = {}) {
    ranks_.push_back(std::make_unique<Program>(*node_, path(), environment, wrapper));
    Program &rank = *ranks_.back();
    rank.must("init");
    rank.make("cuCtxCreate_v2", 0u);
    EXPECT_TRUE(rank.tell("call " + launches));
    return rank;
  }

  std::string path() const { return directory_.path() + "/7"; }
  Node &node() { return *node_; }
  DeviceUsage &device() { return region_.usage().device(0); }
  double ratio() { return static_cast<double>(TrimWord::unpack(device().trim.load()).ratio) / TrimWord::kOne; }
  bool comes_to(double ratio, double within) {
    return eventually([&] { return this->ratio() > ratio - within && this->ratio() < ratio + within; });
  }
  static bool eventually(const std::function<bool()> &is_so) {
    constexpr std::chrono::seconds kPatience{60};
    for (const auto start = Clock::now(); Clock::now() - start < kPatience; sleep_ms(20)) {
      if (is_so()) return true;
    }
    return false;
  }
  // How busy the device is from now on, in percent.
  double busy_for(long ms) {
    const Node::Busy before = node_->busy(0);
    sleep_ms(ms);
    const Node::Busy after = node_->busy(0);
    return 100 * static_cast<double>(after.ns - before.ns) / static_cast<double>(after.at_ns - before.at_ns);
  }

  std::vector<std::unique_ptr<Program>> ranks_;

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<Node> node_;
  Region region_;
};

const std::vector<std::string> kInNamespace = {"/usr/bin/unshare", "--pid", "--fork", "--kill-child"};

bool can_make_namespaces() {
  return std::system("/usr/bin/unshare --pid --fork --kill-child /bin/true 2>/dev/null") == 0;
}

constexpr char kBusy[] = "cuLaunchKernel 2ms 1000000";
constexpr char kNewer[] = "nvmlDeviceGetProcessesUtilizationInfo", kOlder[] = "nvmlDeviceGetProcessUtilization";

// A ratio that is wrong is corrected, whichever call NVML has. Whoever makes the other call is killed.
TEST_F(UtilisationTest, NewerCallFirst) {
  make("", 30, 0.5);
  node().set_faults(std::string(kOlder) + " kill before");
  start(kBusy);
  EXPECT_TRUE(comes_to(1, 0.1)) << ratio();
}

TEST_F(UtilisationTest, TheOlderCallWhereTheNewerIsNotSupported) {
  make(std::string("nvml_unsupported=") + kNewer, 30, 0.5);
  node().set_faults(std::string(kNewer) + "@2+ kill before");
  start(kBusy);
  EXPECT_TRUE(comes_to(1, 0.1)) << ratio();
}

TEST_F(UtilisationTest, WithoutEitherTheRatioStays) {
  make("nvml_unsupported=nvmlDeviceGetProcess*", 30, 0.9);
  node().set_faults(std::string(kNewer) + "@2+ kill before;" + kOlder + "@2+ kill before");
  start(kBusy);
  ASSERT_TRUE(eventually([&] { return device().lease.load() != 0; }));
  EXPECT_NEAR(busy_for(4000), 30 / 0.9, 2) << "it lives, and is held to its share by what it measures";
  EXPECT_NEAR(ratio(), 0.9, 0.001);
}

// Nobody of the job in what NVML says is not "0 %".
TEST_F(UtilisationTest, ForeignPidsAreUnknown) {
  make("nvml_pids=foreign", 20);
  start(kBusy);
  ASSERT_TRUE(eventually([&] { return device().lease.load() != 0; }));
  EXPECT_LE(busy_for(10'000), 22);
  EXPECT_EQ(ratio(), 1);
}

// In a container whose driver lists processes by the container's numbers, and samples them by the host's.
TEST_F(UtilisationTest, HostPidsInAContainerAreUnknown) {
  make("nvml_pids=mixed", 20);
  if (!can_make_namespaces()) GTEST_SKIP() << "needs the right to make a PID namespace";
  start(kBusy, {}, kInNamespace);
  ASSERT_TRUE(eventually([&] { return device().lease.load() != 0; }));
  EXPECT_LE(busy_for(6000), 22);
  EXPECT_EQ(ratio(), 1);
}

TEST_F(UtilisationTest, HostPidsInAContainerThatAreFoundCount) {
  make("nvml_pids=host", 30, 0.5);
  if (!can_make_namespaces()) GTEST_SKIP() << "needs the right to make a PID namespace";
  start(kBusy, {}, kInNamespace);
  EXPECT_TRUE(comes_to(1, 0.1)) << ratio();
}

// Half of the job says nothing of all of it: a rank whose number nobody knows keeps the device busy, too.
TEST_F(UtilisationTest, SomeOfTheRanksAreNotTheJob) {
  make("nvml_pids=mixed", 20);
  if (!can_make_namespaces()) GTEST_SKIP() << "needs the right to make a PID namespace";
  start(kBusy);
  start(kBusy, {}, kInNamespace);
  ASSERT_TRUE(eventually([&] { return device().lease.load() != 0; }));
  EXPECT_LE(busy_for(6000), 22);
  EXPECT_EQ(ratio(), 1);
}

}  // namespace
}  // namespace vgpu::test
