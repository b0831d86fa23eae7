// The probe on the simulated GPU node, with a topology that knows its PCI devices.
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nvml.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "node/measure.h"
#include "node/probe.h"
#include "region/support.h"
#include "utils/vgpu-probe/cuda_calls.h"
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
static_assert(sizeof(probe::nvml::Memory2) == sizeof(nvmlMemory_v2_t) && probe::nvml::kMemory2 == nvmlMemory_v2);
static_assert(offsetof(probe::nvml::Memory2, reserved) == offsetof(nvmlMemory_v2_t, reserved));
static_assert(probe::nvml::kComputeModeDefault == NVML_COMPUTEMODE_DEFAULT);
static_assert(probe::nvml::kDriverVersionSize >= NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
static_assert(sizeof(probe::cuda::AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(probe::cuda::AllocationProperties, location_id) ==
              offsetof(CUmemAllocationProp, location) + offsetof(CUmemLocation, id));
static_assert(probe::cuda::kPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(probe::cuda::kOnDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(probe::cuda::kMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
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

class SimulatedContext : public SimulatedNode {
 protected:
  // The first device, and what a context takes there.
  Error measure(const char *config, KnownContext *figure) {
    Node node;
    if (Error error = probe(config, &node)) return error;
    device_ = node.devices[0];
    return measure_context(options_, RegionDirectory(regions_.path()), device_, figure);
  }

  test::TemporaryDirectory regions_;
  NodeDevice device_;
};

INSTANTIATE_TEST_SUITE_P(Driver, SimulatedContext, ::testing::Values("13.0", "535"),
                         [](const auto &info) { return info.index == 0 ? "R580" : "R535"; });

TEST_P(SimulatedContext, IsMeasuredWhateverNvmlIsLike) {
  for (const char *whim : {"", "visibility_ms=300;", "nvml_bytes=0;", "nvml_bytes=none;", "nvml_used=reserved;",
                           "nvml_pids=namespace;", "profile=hardware;"}) {
    KnownContext figure;
    const std::string config = std::string(whim) + "memory=16GiB; context=307MiB; reserved=256MiB; device; device";
    const Error error = measure(config.c_str(), &figure);
    ASSERT_FALSE(error) << whim << ": " << error.text;
    EXPECT_EQ(figure.uuid, device_.identity.uuid) << whim;
    EXPECT_EQ(figure.bytes, std::uint64_t{308} << 20) << whim << "in blocks of 2 MiB";
    EXPECT_EQ(figure.usable_bytes, std::uint64_t{16384 - 256} << 20) << whim;
    EXPECT_EQ(figure.block_bytes, std::uint64_t{2} << 20) << whim;
    EXPECT_EQ(device_.usable_bytes, GetParam() == std::string("13.0") ? figure.usable_bytes : device_.usable_bytes);
    EXPECT_FALSE(figure.driver.empty());
    EXPECT_EQ(std::system(VGPU_BUILD_DIR "/simgpu/simgpu-ctl stop >/dev/null"), 0);
  }
}

TEST_P(SimulatedContext, IsNotMeasuredBesideSomebodyElse) {
  KnownContext figure;
  ASSERT_FALSE(measure("memory=4GiB; device", &figure));
  int told[2], wait[2];
  ASSERT_EQ(pipe(told), 0);
  ASSERT_EQ(pipe(wait), 0);
  const std::string library = std::string(VGPU_BUILD_DIR "/simgpu/") + GetParam() + "/libcuda.so.1";
  const pid_t neighbour = test::spawn([&] {
    void *driver = dlopen(library.c_str(), RTLD_NOW);
    CUcontext context = nullptr;
    reinterpret_cast<decltype(&cuInit)>(dlsym(driver, "cuInit"))(0);
    reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    char byte = 'x';
    usleep(200'000);  // NVML is late
    if (write(told[1], &byte, 1) != 1) return 1;
    close(wait[1]);
    return read(wait[0], &byte, 1) == 0 ? 0 : 1;
  });
  char byte;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  figure = {};
  const Error error = measure("memory=4GiB; device", &figure);
  EXPECT_EQ(error.fault, Fault::exists) << error.text;
  EXPECT_NE(std::string(error.text).find("uses it"), std::string::npos) << error.text;
  EXPECT_EQ(figure.bytes, 0u);
  close(wait[1]);
  EXPECT_TRUE(test::exited_with(test::wait_for(neighbour), 0));
  for (const int fd : {told[0], told[1], wait[0]}) close(fd);
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
