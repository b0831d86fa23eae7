// A node with prepared regions, and vgpuctl to look at them.
//
//   job 7    root's, 2 GPUs, launches hooked, two ranks
//   job 12   daemon's, full
//   job 30   root's, its only rank was killed
//   job 100  root's, idle
#pragma once

#include <sys/stat.h>

#include "node/history.h"
#include "node/node.h"
#include "region/layout.h"
#include "vgpu-run/support.h"

namespace vgpu::test {

using namespace node;
using namespace region;

inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
inline const std::string kVgpuctl = VGPU_BUILD_DIR "/utils/vgpuctl/vgpuctl";

inline NodeDevice make_device(unsigned index) {
  NodeDevice device;
  device.gres_index = static_cast<int>(index);
  device.minor = static_cast<int>(index);
  device.device_file = "/dev/nvidia" + std::to_string(index);
  device.gpu_uuid = "GPU-0000000" + std::to_string(index);
  assign(device.identity.uuid, device.gpu_uuid);
  assign(device.identity.pci_bus_id, index == 0 ? "0000:21:00.0" : "0000:81:00.0");
  assign(device.identity.cpuset, index == 0 ? "0-1" : "2-3");
  device.identity.memory_bytes = 16 * kGiB;
  device.identity.numa_node = static_cast<int>(index);
  return device;
}

class Vgpuctl : public ::testing::Test {
 protected:
  Vgpuctl() {
    setenv("SLURMD_NODENAME", "n1", 1);
    setenv("VGPU_REGION_DIR", regions_.path().c_str(), 1);
    setenv("XDG_RUNTIME_DIR", runtime_.path().c_str(), 1);
    setenv("HWLOC_XMLFILE", VGPU_SOURCE_DIR "/tests/vgpu-probe/topology.xml", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("SLURM_CONF", conf("slurm.conf").c_str(), 1);
    std::filesystem::create_directories(conf("plugstack.conf.d"));
    std::ofstream(conf("slurm.conf")) << "";
    unsetenv("LD_PRELOAD");
  }
  void SetUp() override {
    SKIP_IF_EMULATED("the kernel cannot start its programs");
    if (geteuid() != 0) GTEST_SKIP() << "only root can make regions for several users";
    Node node;
    for (unsigned i = 0; i < 2; ++i) node.devices.push_back(make_device(i));
    const Error error = write_node(regions_.path() + "/node", node);
    ASSERT_FALSE(error) << error.text;
  }

  // Slurm's.
  std::string conf(const std::string &name) const { return scratch_.path() + "/etc/" + name; }

  std::string path(const std::string &job) const { return regions_.path() + "/" + job; }

  void create(unsigned job, uid_t uid, std::vector<std::uint64_t> limits, std::uint32_t sm = 100) {
    std::vector<DeviceSpec> devices;
    for (unsigned i = 0; i < limits.size(); ++i) {
      devices.emplace_back();
      devices.back().identity = make_device(i).identity;
      devices.back().memory_limit = limits[i];
      devices.back().sm_percent = sm;
    }
    RegionSpec spec;
    spec.job_id = job;
    spec.uid = uid;
    spec.launch_hooks = sm < 100;
    spec.ndev = static_cast<unsigned>(devices.size());
    spec.devices = devices.data();
    const Error error = Region::create(regions_.path().c_str(), std::to_string(job).c_str(), spec);
    ASSERT_FALSE(error) << error.text;
  }

  RankProcess &add_rank(unsigned job) {
    ranks_.push_back(std::make_unique<RankProcess>(path(std::to_string(job))));
    EXPECT_TRUE(ranks_.back()->attached());
    return *ranks_.back();
  }

  // As if ranks had written it.
  void poke(unsigned job, std::size_t offset, std::uint64_t value) {
    const ScopedFd fd(open((path(std::to_string(job)) + "/usage").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(pwrite(fd.get(), &value, sizeof value, static_cast<off_t>(offset)), 8);
  }

  void prepare() {
    create(7, 0, {8 * kGiB, 4 * kGiB}, 50);
    RankProcess &first = add_rank(7);
    RankProcess &second = add_rank(7);
    EXPECT_TRUE(first.reserve(kGiB));
    EXPECT_TRUE(first.reserve(64 * kMiB, 0, Kind::context));
    EXPECT_TRUE(second.reserve(512 * kMiB, 1));
    EXPECT_FALSE(second.reserve(8 * kGiB, 1));
    const std::size_t device = offsetof(UsageFile, devices);
    poke(7, device + offsetof(DeviceUsage, launches), 1234);
    poke(7, device + offsetof(DeviceUsage, throttled_ns), 5'600'000'000);
    create(12, 1, {2 * kGiB});
    EXPECT_TRUE(add_rank(12).reserve(2 * kGiB));
    create(30, 0, {kGiB});
    EXPECT_TRUE(add_rank(30).reserve(256 * kMiB));
    ranks_.back()->end(SIGKILL);
    create(100, 0, {kGiB});
  }

  Result run(const std::vector<std::string> &arguments) const { return run_program(kVgpuctl, arguments); }
  Result run_program(const std::string &program, const std::vector<std::string> &arguments) const {
    std::vector<std::string> words = {program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Program child(scratch_.path(), words);
    const int status = child.wait();
    return {status, child.out(), child.err()};
  }

  // What differs from run to run gets a name.
  std::string normal(std::string text) const;

  // Compares with tests/vgpuctl/golden/NAME; VGPU_UPDATE_GOLDEN=1 writes it instead.
  static void expect_golden(const std::string &name, const std::string &text) {
    const std::string file = VGPU_SOURCE_DIR "/tests/vgpuctl/golden/" + name;
    if (std::getenv("VGPU_UPDATE_GOLDEN") != nullptr) std::ofstream(file) << text;
    EXPECT_EQ(text, read_file(file)) << "in " << file;
  }

  TemporaryDirectory regions_, runtime_, scratch_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
};

// Tables whose columns are as wide as the PIDs in them.
std::string without_padding(const std::string &text);

std::string replaced(const std::string &text, const std::string &pattern, const std::string &with);
// Of every match the group, or all of it where the pattern has none.
std::vector<std::string> matches(const std::string &text, const std::string &pattern);

}  // namespace vgpu::test
