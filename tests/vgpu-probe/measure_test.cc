// Measuring contexts, with a driver that misbehaves in every way we know; on the simulated one: simulated_node_test.cc.
#include "node/measure.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "node/region_limits.h"
#include "region/support.h"

namespace vgpu::node {

using namespace region;
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class Measure : public ::testing::Test {
 protected:
  Measure() : directory_(regions_.path()), state_(scratch_.path() + "/state/contexts") {
    options_.program = VGPU_BUILD_DIR "/utils/vgpu-probe/vgpu-probe";
    // CUDA is looked for beside NVML.
    for (const char *name : {"libnvidia-ml.so.1", "libcuda.so.1"}) {
      std::filesystem::create_symlink(VGPU_BUILD_DIR "/tests/vgpu-probe/fake_nvml.so", scratch_.path() + "/" + name);
    }
    options_.nvml = scratch_.path() + "/libnvidia-ml.so.1";
    setenv("FAKE_NVML_RECORD", record().c_str(), 1);
    setenv("HWLOC_XMLFILE", VGPU_SOURCE_DIR "/tests/vgpu-probe/topology.xml", 1);
    assign(device_.identity.uuid, "GPU-00000002");
    device_.gpu_uuid = "GPU-00000002";
  }
  ~Measure() override {
    unsetenv("FAKE_NVML");
    unsetenv("FAKE_NVML_RECORD");
  }

  Error measure(const char *mode, KnownContext *figure) {
    setenv("FAKE_NVML", mode, 1);
    return measure_context(options_, directory_, device_, figure);
  }
  void expect_error(const char *mode, Fault fault, const char *words) {
    KnownContext figure;
    const Error error = measure(mode, &figure);
    EXPECT_EQ(error.fault, fault) << mode << ": " << error.text;
    EXPECT_NE(std::strstr(error.text, words), nullptr) << mode << ": " << error.text;
    EXPECT_EQ(figure, KnownContext()) << mode;
  }
  // A job with a limit on that GPU.
  void make_region(const char *job, const char *uuid) {
    DeviceSpec spec;
    assign(spec.identity.uuid, uuid);
    spec.identity.memory_bytes = 1024 * kMiB;
    spec.memory_limit = 512 * kMiB;
    const RegionSpec region = {1, geteuid(), false, 1, &spec};
    const Error error = Region::create(regions_.path().c_str(), job, region);
    ASSERT_FALSE(error) << error.text;
  }
  void write_node_file(const std::string &driver = "580.95.05") {
    Node node;
    setenv("FAKE_NVML", "", 1);
    ASSERT_FALSE(probe_devices(options_, &node));
    node.driver = driver;
    ASSERT_FALSE(write_node(directory_.node_file(), node));
  }
  Node read_node_file() const {
    Node node;
    EXPECT_FALSE(read_node(directory_.node_file(), Trust::root, &node));
    return node;
  }

  std::string record() const { return scratch_.path() + "/record"; }
  std::string recorded() const {
    std::ifstream file(record());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  test::TemporaryDirectory regions_, scratch_;
  RegionDirectory directory_;
  std::string state_;
  ProbeOptions options_;
  NodeDevice device_;
};

TEST_F(Measure, OneContextOnOneGpu) {
  KnownContext figure;
  const Error error = measure("", &figure);
  ASSERT_FALSE(error) << error.text;
  EXPECT_EQ(figure.uuid, "GPU-00000002");
  EXPECT_EQ(figure.driver, "580.95.05");
  EXPECT_EQ(figure.bytes, 300 * kMiB);
  EXPECT_EQ(figure.usable_bytes, 39 * 1024 * kMiB);
  EXPECT_EQ(figure.block_bytes, 4 * kMiB);
  EXPECT_GT(figure.measured, 1'700'000'000);
}

TEST_F(Measure, WhereNvmlDoesNotSayWhatWeHaveTheGpusOwnFigureIsTaken) {
  for (const char *mode : {"absent", "zero", "no-value"}) {
    KnownContext figure;
    const Error error = measure(mode, &figure);
    ASSERT_FALSE(error) << mode << ": " << error.text;
    EXPECT_EQ(figure.bytes, 300 * kMiB) << mode;
  }
}

TEST_F(Measure, WithNeitherMpsNorSettingsNorLibrariesOfTheCallers) {
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  setenv("LD_PRELOAD", "/nonexistent/libvgpu.so", 1);
  KnownContext figure;
  const Error error = measure("", &figure);
  for (const char *name : {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_DEVICE_MAX_CONNECTIONS", "LD_PRELOAD"}) unsetenv(name);
  ASSERT_FALSE(error) << error.text;
  const std::string seen = recorded();
  EXPECT_NE(seen.find("no MPS\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("CUDA_VISIBLE_DEVICES=GPU-00000002\n"), std::string::npos) << seen;
  EXPECT_EQ(seen.find("nvidia-mps"), std::string::npos) << seen;
  EXPECT_EQ(seen.find("MAX_CONNECTIONS"), std::string::npos) << seen;
  EXPECT_NE(seen.find("LD_PRELOAD=\n"), std::string::npos) << seen;
  const std::size_t place = seen.find("CUDA_MPS_PIPE_DIRECTORY=") + std::strlen("CUDA_MPS_PIPE_DIRECTORY=");
  EXPECT_FALSE(std::filesystem::exists(seen.substr(place, seen.find('\n', place) - place))) << "left behind";
}

TEST_F(Measure, NothingWhereSomebodyMayBeInTheWay) {
  expect_error("exclusive", Fault::invalid, "its compute mode is not the default one");
  expect_error("neighbour", Fault::exists, "process 1 uses it");
  expect_error("desktop", Fault::exists, "process 1 uses it");
  expect_error("joined", Fault::exists, "uses it");
  expect_error("silent", Fault::system, "NVML cannot tell its processes");
  expect_error("growing", Fault::timeout, "no steady figure");
  expect_error("nameless", Fault::system, "does not say which driver");
  expect_error("no-cuda", Fault::system, "cuInit: CUDA_ERROR_NO_DEVICE");
}

TEST_F(Measure, ADriverThatHangsIsKilledAtTheDeadline) {
  setenv("FAKE_NVML", "hang-in-cuda", 1);
  options_.deadline_ms = 300;
  std::string answer;
  const Error error = run_probe(options_, {"--measure", "GPU-00000002"}, &answer);
  EXPECT_EQ(error.fault, Fault::timeout) << error.text;
  EXPECT_NE(std::strstr(error.text, "the driver did not answer within 300 ms"), nullptr) << error.text;
}

TEST_F(Measure, NothingWhereAJobHasARegion) {
  if (geteuid() != 0) GTEST_SKIP() << "regions of jobs are root's";
  make_region("17", "GPU-00000001");
  KnownContext figure;
  EXPECT_FALSE(measure("", &figure)) << "that is another GPU";
  make_region("18", "GPU-00000002");
  expect_error("", Fault::exists, "job 18 has a region for it");
  std::filesystem::remove_all(regions_.path() + "/18");
  make_region("19", "GPU-00000002");
  std::ofstream(regions_.path() + "/19/limits", std::ios::trunc) << "garbage";
  KnownContext none;
  EXPECT_TRUE(measure("", &none)) << "who knows for which GPU that is";
}

TEST_F(Measure, AMigInstanceByItsOwnName) {
  assign(device_.identity.uuid, "MIG-00000103");
  device_.gpu_uuid = "GPU-00000001";
  KnownContext figure;
  const Error error = measure("mig", &figure);
  ASSERT_FALSE(error) << error.text;
  EXPECT_EQ(figure.uuid, "MIG-00000103");
  EXPECT_NE(recorded().find("CUDA_VISIBLE_DEVICES=MIG-00000103\n"), std::string::npos);
}

TEST_F(Measure, WhatIsUnknownIsMeasuredOnceAndKept) {
  if (geteuid() != 0) GTEST_SKIP() << "the files are root's";
  write_node_file();
  std::vector<std::string> said;
  const auto note = [&said](const std::string &sentence) { said.push_back(sentence); };
  ASSERT_FALSE(measure_unknown(options_, directory_, state_, note));
  EXPECT_EQ(said, (std::vector<std::string>{"GPU GPU-00000001: a context takes 300MiB with driver 580.95.05",
                                            "GPU GPU-00000002: a context takes 300MiB with driver 580.95.05"}));
  std::vector<KnownContext> all;
  ASSERT_FALSE(read_contexts(state_, Trust::root, &all));
  ASSERT_EQ(all.size(), 2u);
  const Node node = read_node_file();
  EXPECT_EQ(node.devices[1].context.bytes, 300 * kMiB);
  EXPECT_EQ(node.devices[1].context.source, ContextSource::measured);
  EXPECT_EQ(node.devices[1].usable_bytes, 39 * 1024 * kMiB);
  EXPECT_EQ(node.devices[1].block_bytes, 4 * kMiB);
  said.clear();
  ASSERT_FALSE(measure_unknown(options_, directory_, state_, note));
  EXPECT_TRUE(said.empty()) << said[0];
}

TEST_F(Measure, WhatTheSiteSaysStays) {
  if (geteuid() != 0) GTEST_SKIP() << "the files are root's";
  write_node_file();
  Node node = read_node_file();
  node.devices[0].context = {100 * kMiB, ContextSource::site};
  ASSERT_FALSE(write_node(directory_.node_file(), node));
  ASSERT_FALSE(keep_context(directory_, state_, {"GPU-00000001", "580.95.05", 7 * kMiB, 8 * kMiB, 0, 1}));
  node = read_node_file();
  EXPECT_EQ(node.devices[0].context.bytes, 100 * kMiB);
  EXPECT_EQ(node.devices[0].context.source, ContextSource::site);
  EXPECT_EQ(node.devices[0].usable_bytes, 8 * kMiB);
}

TEST_F(Measure, AStateFileThatIsNotRootsIsNeitherReadNorReplaced) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write_node_file();
  ASSERT_FALSE(write_contexts(state_, {{"GPU-00000001", "580.95.05", 1, 0, 0, 1}}));
  ASSERT_EQ(chown(state_.c_str(), 65534, 65534), 0);
  std::vector<std::string> said;
  ASSERT_FALSE(measure_unknown(options_, directory_, state_, [&](const std::string &text) { said.push_back(text); }));
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[0].find("belongs to uid 65534, not to root"), std::string::npos) << said[0];
  EXPECT_EQ(read_node_file().devices[0].context.source, ContextSource::unknown);
}

}  // namespace
}  // namespace vgpu::node
