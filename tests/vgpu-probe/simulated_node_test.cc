// The probe on the simulated GPU node, with a topology that knows its PCI devices.
#include <gtest/gtest.h>
#include <nvml.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "node/probe.h"
#include "region/support.h"
#include "utils/vgpu-probe/nvml_calls.h"

namespace vgpu::node {

using namespace region;
namespace {

static_assert(sizeof(probe::nvml::Memory) == sizeof(nvmlMemory_t));
static_assert(offsetof(probe::nvml::Memory, total) == offsetof(nvmlMemory_t, total));
static_assert(sizeof(probe::nvml::PciInfo) == sizeof(nvmlPciInfo_t));
static_assert(offsetof(probe::nvml::PciInfo, domain) == offsetof(nvmlPciInfo_t, domain));
static_assert(offsetof(probe::nvml::PciInfo, bus) == offsetof(nvmlPciInfo_t, bus));
static_assert(offsetof(probe::nvml::PciInfo, device) == offsetof(nvmlPciInfo_t, device));
static_assert(offsetof(probe::nvml::PciInfo, bus_id) == offsetof(nvmlPciInfo_t, busId));
static_assert(sizeof(probe::nvml::Process) == sizeof(nvmlProcessInfo_v2_t));
static_assert(offsetof(probe::nvml::Process, used_memory) == offsetof(nvmlProcessInfo_v2_t, usedGpuMemory));
static_assert(sizeof(probe::nvml::Utilization) == sizeof(nvmlProcessUtilizationSample_t));
static_assert(offsetof(probe::nvml::Utilization, time_us) == offsetof(nvmlProcessUtilizationSample_t, timeStamp));
static_assert(offsetof(probe::nvml::Utilization, sm_percent) == offsetof(nvmlProcessUtilizationSample_t, smUtil));
static_assert(probe::nvml::kInsufficientSize == NVML_ERROR_INSUFFICIENT_SIZE);
static_assert(probe::nvml::kNoValue == static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE));
static_assert(probe::nvml::kSuccess == NVML_SUCCESS && probe::nvml::kNotFound == NVML_ERROR_NOT_FOUND);
static_assert(probe::nvml::kUuidSize >= NVML_DEVICE_UUID_V2_BUFFER_SIZE);
static_assert(sizeof(probe::nvml::Device) == sizeof(nvmlDevice_t));

class SimulatedNode : public ::testing::TestWithParam<const char *> {
 protected:
  SimulatedNode() {
    setenv("SIMGPU_NODE", directory_.path().c_str(), 1);
    options_.program = VGPU_BUILD_DIR "/utils/vgpu-probe/vgpu-probe";
    options_.nvml = std::string(VGPU_BUILD_DIR "/simgpu/") + GetParam() + "/libnvidia-ml.so.1";
    options_.hwloc_xml = VGPU_SOURCE_DIR "/tests/vgpu-probe/topology.xml";
  }
  ~SimulatedNode() override { EXPECT_EQ(std::system(VGPU_BUILD_DIR "/simgpu/simgpu-ctl stop >/dev/null"), 0); }
  Error probe(const char *config, Node *node) {
    setenv("SIMGPU_CONFIG", config, 1);
    return probe_devices(options_, node);
  }

  test::TemporaryDirectory directory_;
  ProbeOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Driver, SimulatedNode, ::testing::Values("13.0", "535"),
                         [](const auto &info) { return info.index == 0 ? "R580" : "R535"; });

TEST_P(SimulatedNode, IsDescribed) {
  Node node;
  const Error error = probe(
      "memory=16GiB; device; pci=0000:81:00.0; uuid=GPU-00000000-0000-4000-8000-00000000000b;"
      "memory=8GiB; device; pci=0000:21:00.0; uuid=GPU-00000000-0000-4000-8000-00000000000a",
      &node);
  ASSERT_FALSE(error) << error.text;
  ASSERT_EQ(node.devices.size(), 2u);
  // In the order of the PCI bus.
  EXPECT_STREQ(node.devices[0].identity.uuid, "GPU-00000000-0000-4000-8000-00000000000a");
  EXPECT_STREQ(node.devices[0].identity.pci_bus_id, "0000:21:00.0");
  EXPECT_EQ(node.devices[0].identity.memory_bytes, std::uint64_t{16} << 30);
  EXPECT_STREQ(node.devices[1].identity.uuid, "GPU-00000000-0000-4000-8000-00000000000b");
  EXPECT_EQ(node.devices[1].identity.memory_bytes, std::uint64_t{8} << 30);
#ifdef VGPU_HWLOC
  EXPECT_EQ(node.devices[0].identity.numa_node, 0);
  EXPECT_STREQ(node.devices[0].identity.cpuset, "0-1");
  EXPECT_EQ(node.devices[1].identity.numa_node, 1);
  EXPECT_STREQ(node.devices[1].identity.cpuset, "2-3");
#endif
}

TEST_P(SimulatedNode, ADeviceThatTheTopologyDoesNotKnowIsNowhere) {
  Node node;
  ASSERT_FALSE(probe("device; pci=0000:41:00.0", &node));
  ASSERT_EQ(node.devices.size(), 1u);
  EXPECT_EQ(node.devices[0].identity.numa_node, -1);
  EXPECT_STREQ(node.devices[0].identity.cpuset, "");
}

TEST_P(SimulatedNode, ABrokenDeviceIsAProblem) {
  Node node;
  ASSERT_FALSE(probe("device; pci=0000:21:00.0; device; pci=0000:81:00.0; broken=yes", &node));
  EXPECT_EQ(node.devices.size(), 1u);
  EXPECT_EQ(node.problems, std::vector<std::string>{"NVML cannot tell about GPU 1: GPU is lost"});
}

TEST_P(SimulatedNode, AnNvmlThatHangsOrFailsIsGivenUp) {
  options_.deadline_ms = 300;
  const struct {
    const char *faults, *said;
  } cases[] = {
      {"nvmlInit_v2 delay 60000", "NVML did not answer within 300 ms"},
      {"nvmlDeviceGetMemoryInfo* delay 60000", "NVML did not answer within 300 ms"},
      {"nvmlInit_v2 fail 9", "Driver Not Loaded"},
      {"nvmlDeviceGetCount_v2 kill before", "NVML"},
  };
  for (const auto &faulty : cases) {
    setenv("SIMGPU_FAULTS", faulty.faults, 1);
    Node node;
    const auto start = std::chrono::steady_clock::now();
    const Error error = probe("memory=4GiB; device", &node);
    unsetenv("SIMGPU_FAULTS");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3)) << faulty.faults;
    EXPECT_TRUE(error) << faulty.faults;
    EXPECT_NE(std::string(error.text).find(faulty.said), std::string::npos) << faulty.faults << ": " << error.text;
    EXPECT_EQ(node.devices.size(), 0u) << "changed by a failure";
  }
}

TEST_P(SimulatedNode, CanBeWrittenDownAndReadBack) {
  Node node, again;
  ASSERT_FALSE(probe("memory=4GiB; device; device; device", &node));
  const std::string path = directory_.path() + "/node";
  const Error error = write_node(path, node);
  ASSERT_FALSE(error) << error.text;
  ASSERT_FALSE(read_node(path, Trust::root_or_self, &again));
  EXPECT_EQ(format_node(node), format_node(again));
  EXPECT_EQ(again.devices.size(), 3u);
}

}  // namespace
}  // namespace vgpu::node
