// The parts of the plugin that need no Slurm around them: numbering of GPUs, limits, admission, the site's keys.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "node/admission.h"
#include "node/lists.h"
#include "node/preload.h"
#include "node/site_config.h"
#include "region/support.h"
#include "spank/gres.h"
#include "spank/job_limits.h"

namespace vgpu::spank {

using namespace node;
using namespace region;
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

NodeDevice device(const char *uuid, int minor, const char *file, const char *pci, std::uint64_t memory = 8 * kGiB) {
  NodeDevice result;
  result.minor = minor;
  result.device_file = file;
  assign(result.identity.uuid, uuid);
  assign(result.identity.pci_bus_id, pci);
  result.identity.memory_bytes = memory;
  return result;
}

std::vector<int> numbers(const std::vector<NodeDevice> &devices) {
  std::vector<int> result;
  for (const NodeDevice &each : devices) result.push_back(each.gres_index);
  return result;
}

class GresConf : public ::testing::Test {
 protected:
  GresFiles read(const char *text, const char *node = "n1") {
    config_.gres_conf = directory_.path() + "/gres.conf";
    std::ofstream(config_.gres_conf) << text;
    GresFiles gpus;
    const Error error = read_gres_conf(config_, node, &gpus);
    EXPECT_FALSE(error) << error.text;
    return gpus;
  }

  test::TemporaryDirectory directory_;
  SiteConfig config_;
};

TEST_F(GresConf, OneIndexPerFileInTheOrderOfTheLines) {
  const GresFiles expected = {{"/dev/nvidia3"}, {"/dev/nvidia0"}, {"/dev/nvidia1"}, {"/dev/nvidia7"}};
  EXPECT_EQ(read("# Name=gpu File=/dev/no\n"
                 "Name=gpu Type=a100 File=/dev/nvidia3 Cores=0-3\n"
                 "name=GPU file=/dev/nvidia[0-1]   # comment\n"
                 "Name=shard Count=8 File=/dev/nvidia0\n"
                 "NodeName=n[2-4] Name=gpu File=/dev/nvidia9\n"
                 "NodeName=m7,n[0-1] Name=gpu File=/dev/nvidia7\n"),
            expected);
}

TEST_F(GresConf, WithoutFilesThereIsNothingToSay) {
  EXPECT_TRUE(read("AutoDetect=nvml\nName=gpu\n").empty());
  config_.gres_conf = directory_.path() + "/missing";
  GresFiles gpus;
  EXPECT_TRUE(read_gres_conf(config_, "n1", &gpus)) << "a file that the site names must be there";
}

TEST_F(GresConf, AMigInstanceIsOneIndex) {
  const GresFiles gpus = read(
      "Name=gpu File=/dev/nvidia1\n"
      "Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap30,/dev/nvidia-caps/nvidia-cap31\n"
      "Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22\n");
  ASSERT_EQ(gpus.size(), 3u);
  std::vector<NodeDevice> devices = {
      device("MIG-a", 0, "/dev/nvidia-caps/nvidia-cap22", "0000:10:00.0"),
      device("MIG-b", 0, "/dev/nvidia-caps/nvidia-cap31", "0000:10:00.0"),
      device("GPU-c", 1, "/dev/nvidia1", "0000:20:00.0"),
      device("MIG-d", 0, "/dev/nvidia-caps/nvidia-cap40", "0000:10:00.0"),
  };
  number_devices(gpus, &devices);
  EXPECT_EQ(numbers(devices), (std::vector<int>{2, 1, 0, -1}));
}

TEST(Numbering, ByTheMinorOfTheFileWhateverItsName) {
  // /dev/null is a character device with minor 3, /dev/zero one with minor 5.
  std::vector<NodeDevice> devices = {device("GPU-a", 5, "/dev/nvidia5", "0000:10:00.0"),
                                     device("GPU-b", 3, "/dev/nvidia3", "0000:20:00.0")};
  number_devices({{"/dev/null"}, {"/dev/zero"}}, &devices);
  EXPECT_EQ(numbers(devices), (std::vector<int>{1, 0}));
}

TEST(Numbering, WithoutFilesByPciBus) {
  std::vector<NodeDevice> devices = {device("GPU-a", 0, "/dev/nvidia0", "0000:81:00.0"),
                                     device("GPU-b", 1, "/dev/nvidia1", "0000:21:00.0")};
  number_devices({}, &devices);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_STREQ(devices[0].identity.uuid, "GPU-b");
  EXPECT_EQ(numbers(devices), (std::vector<int>{0, 1}));
}

TEST(Text, IndexLists) {
  std::vector<unsigned> indices;
  ASSERT_TRUE(parse_index_list("0,2-4,9", 64, &indices));
  EXPECT_EQ(indices, (std::vector<unsigned>{0, 2, 3, 4, 9}));
  ASSERT_TRUE(parse_index_list("", 64, &indices));
  EXPECT_TRUE(indices.empty());
  for (const char *bad : {"x", "1x", "-1", "1-", "3-2", "0-64", "0-4294967295", "99999999999", "1 2"}) {
    EXPECT_FALSE(parse_index_list(bad, 64, &indices)) << bad;
  }
}

TEST(Preload, OnceAndFirst) {
  EXPECT_EQ(with_library("", "/l.so"), "/l.so");
  EXPECT_EQ(with_library("/a.so:/b.so", "/l.so"), "/l.so:/a.so:/b.so");
  EXPECT_EQ(with_library("/a.so /l.so::/b.so:/l.so", "/l.so"), "/l.so:/a.so:/b.so");
  EXPECT_EQ(without_library("/l.so:/a.so:/l.so", "/l.so"), "/a.so");
  EXPECT_EQ(without_library("/other/l.so", "/l.so"), "/other/l.so");
}

RegionLimits limits_of(const char *job, std::uint64_t bytes, const char *uuid = "GPU-a") {
  RegionLimits result;
  result.name = job;
  result.job.uid = 7;
  DeviceSpec spec;
  assign(spec.identity.uuid, uuid);
  spec.memory_limit = bytes;
  result.devices = {spec};
  return result;
}

DeviceSpec wanted(std::uint64_t bytes, std::uint64_t device_bytes = 8 * kGiB) {
  DeviceSpec spec;
  assign(spec.identity.uuid, "GPU-a");
  spec.identity.memory_bytes = device_bytes;
  spec.memory_limit = bytes;
  return spec;
}

TEST(Admission, TheSumMayReachTheDeviceAndNotExceedIt) {
  const std::vector<RegionLimits> others = {limits_of("1", 3 * kGiB), limits_of("2", 3 * kGiB),
                                            limits_of("3", 8 * kGiB, "GPU-b")};
  EXPECT_FALSE(admit_beside(others, 100, "9", {wanted(2 * kGiB)}));
  const Error error = admit_beside(others, 100, "9", {wanted(2 * kGiB + 512)});
  EXPECT_EQ(error.fault, Fault::invalid);
  EXPECT_NE(std::string(error.text).find("job 1 (uid 7): 3GiB, job 2 (uid 7): 3GiB"), std::string::npos) << error.text;
  EXPECT_FALSE(admit_beside(others, 150, "9", {wanted(6 * kGiB)}));
  EXPECT_TRUE(admit_beside(others, 150, "9", {wanted(6 * kGiB + 512)}));
}

TEST(Admission, WhatTheDriverKeepsIsNotPromised) {
  // Four of 4000 MiB on a GPU of 16 GiB, of which 256 MiB are the driver's: they fit, and 128 MiB are left.
  DeviceSpec device = wanted(std::uint64_t{4000} << 20, 16 * kGiB);
  device.usable_bytes = std::uint64_t{16384 - 256} << 20;
  std::vector<RegionLimits> others = {limits_of("1", device.memory_limit), limits_of("2", device.memory_limit),
                                      limits_of("3", device.memory_limit)};
  EXPECT_FALSE(admit_beside(others, 100, "9", {device}));
  device.memory_limit = std::uint64_t{4128} << 20;
  EXPECT_FALSE(admit_beside(others, 100, "9", {device}));
  device.memory_limit += 512;
  const Error error = admit_beside(others, 100, "9", {device});
  EXPECT_EQ(error.fault, Fault::invalid) << "it would be out of memory before its limit";
  EXPECT_NE(std::string(error.text).find("beside the 12000MiB of its 15.75GiB"), std::string::npos) << error.text;
}

TEST(Admission, ARegionThatCannotBeReadIsNamedAndRefusesNobody) {
  test::TemporaryDirectory directory;
  const RegionDirectory regions(directory.path());
  DeviceSpec held = wanted(kGiB);
  for (const char *job : {"1", "2"}) {
    const RegionSpec spec = {1, geteuid(), false, 1, &held};
    ASSERT_FALSE(Region::create(directory.path().c_str(), job, spec));
  }
  std::ofstream(directory.path() + "/1/limits", std::ios::trunc) << "of another release";
  std::vector<Error> unreadable;
  const Error error = admit(regions, 100, "9", {wanted(8 * kGiB)}, &unreadable);
  if (geteuid() == 0) {
    EXPECT_EQ(error.fault, Fault::invalid) << "job 2 still counts: " << error.text;
    EXPECT_FALSE(admit(regions, 100, "9", {wanted(7 * kGiB)}, &unreadable));
    ASSERT_EQ(unreadable.size(), 1u);
    EXPECT_NE(std::string(unreadable[0].text).find("/1/limits"), std::string::npos) << unreadable[0].text;
  }
}

TEST(Admission, AJobIsNotBesideItself) {
  EXPECT_FALSE(admit_beside({limits_of("9", 8 * kGiB)}, 100, "9", {wanted(8 * kGiB)}));
}

TEST(Admission, SumsDoNotWrapAround) {
  const std::uint64_t huge = ~std::uint64_t{0} - 1000;
  EXPECT_TRUE(admit_beside({limits_of("1", huge), limits_of("2", huge)}, 100, "9", {wanted(4000)}));
  EXPECT_FALSE(admit_beside({}, 10'000, "9", {wanted(huge, huge)}));
}

TEST(Admission, TheSentenceHasAnEnd) {
  std::vector<RegionLimits> others;
  for (int job = 1; job <= 64; ++job) others.push_back(limits_of(std::to_string(job).c_str(), kGiB));
  const Error error = admit_beside(others, 100, "99", {wanted(kGiB)});
  ASSERT_TRUE(error);
  EXPECT_NE(std::string(error.text).find("and 60 more"), std::string::npos) << error.text;
  EXPECT_NE(std::string(error.text).find("; ask for less"), std::string::npos) << error.text;
}

TEST(Limits, SharesOfShards) {
  SiteConfig config;
  config.shard_mem = kGiB;
  std::vector<DeviceSpec> limits;
  const std::vector<NodeDevice> two = {device("GPU-a", 0, "", ""), device("GPU-b", 1, "", "")};
  ASSERT_FALSE(decide_limits(config, {}, 5, two, &limits));
  EXPECT_EQ(limits[0].memory_limit, 3 * kGiB) << "five shards on two GPUs round up";
  ASSERT_FALSE(decide_limits(config, {}, 4'000'000'000u, two, &limits));
  EXPECT_EQ(limits[0].memory_limit, 8 * kGiB) << "never more than the device";
  config.max_mem = MemoryLimit{2 * kGiB, 0};
  ASSERT_FALSE(decide_limits(config, {}, 5, two, &limits));
  EXPECT_EQ(limits[1].memory_limit, 2 * kGiB) << "nor than the site allows";
}

TEST(Limits, AStepAsksForNoMoreThanItsShards) {
  SiteConfig config;
  config.shard_mem = kGiB;
  const std::vector<NodeDevice> gpu = {device("GPU-a", 0, "", "")};
  std::vector<DeviceSpec> limits;
  Request request;
  request.mem = MemoryLimits({MemoryLimit{3 * kGiB, 0}});
  EXPECT_EQ(decide_limits(config, request, 2, gpu, &limits).fault, Fault::invalid);
  EXPECT_FALSE(decide_limits(config, request, 3, gpu, &limits));
  EXPECT_FALSE(decide_limits(config, request, 0, gpu, &limits)) << "whole GPUs, or a prolog, which is not told";
  config.shard_mem = 0;
  EXPECT_FALSE(decide_limits(config, request, 2, gpu, &limits)) << "they stand for nothing";
}

TEST(Limits, AreOfWhatCanBeHad) {
  const SiteConfig config;
  NodeDevice gpu = device("GPU-a", 0, "", "");
  gpu.usable_bytes = 8 * kGiB - kGiB / 4;
  gpu.block_bytes = 2 << 20;
  gpu.context = {300 << 20, ContextSource::measured};
  const auto limit_for = [&](MemoryLimits asked) {
    Request request;
    request.mem = std::move(asked);
    std::vector<DeviceSpec> limits;
    const Error error = decide_limits(config, request, 0, {gpu}, &limits);
    EXPECT_FALSE(error) << error.text;
    EXPECT_EQ(limits[0].usable_bytes, gpu.usable_bytes);
    EXPECT_EQ(limits[0].block_bytes, gpu.block_bytes);
    EXPECT_EQ(limits[0].context.bytes, gpu.context.bytes);
    EXPECT_EQ(limits[0].context.source, ContextSource::measured);
    return limits[0].memory_limit;
  };
  EXPECT_EQ(limit_for({}), gpu.usable_bytes);
  EXPECT_EQ(limit_for(MemoryLimits({MemoryLimit{0, 50'000'000}})), gpu.usable_bytes / 2);
  EXPECT_EQ(limit_for(MemoryLimits({MemoryLimit{4 * kGiB, 0}})), 4 * kGiB);
  EXPECT_EQ(limit_for(MemoryLimits({MemoryLimit{8 * kGiB, 0}})), gpu.usable_bytes) << "the whole of it";
  Request more;
  more.mem = MemoryLimits({MemoryLimit{8 * kGiB + 512, 0}});
  std::vector<DeviceSpec> limits;
  EXPECT_EQ(decide_limits(config, more, 0, {gpu}, &limits).fault, Fault::invalid);
}

TEST(Limits, AStepIsComparedWithWhatItsJobAskedFor) {
  RegionLimits job = limits_of("1", 4 * kGiB);  // raised while it runs
  job.devices[0].identity.memory_bytes = 8 * kGiB;
  job.devices[0].sm_percent = 100;
  Request original;
  original.mem = MemoryLimits({MemoryLimit{2 * kGiB, 0}});
  Request step = original;
  EXPECT_TRUE(check_step(step, std::nullopt, job));
  EXPECT_FALSE(check_step(step, original, job));
  step.mem = MemoryLimits({MemoryLimit{kGiB, 0}});
  EXPECT_TRUE(check_step(step, original, job));
}

TEST(SiteKeys, AreSetOnceAndForAll) {
  const char *words[] = {"max_mem=50%", "overcommit=1.25", "opt_out=root,@games,1234", "fail=open", "log=debug"};
  SiteConfig config;
  const Error error = SiteConfig::parse(5, const_cast<char **>(words), &config);
  ASSERT_FALSE(error) << error.text;
  EXPECT_TRUE(config.max_mem && config.max_mem->is_share());
  EXPECT_EQ(config.overcommit_percent, 125u);
  EXPECT_TRUE(config.fail_open);
  EXPECT_TRUE(config.opt_out.includes(0));
  EXPECT_TRUE(config.opt_out.includes(1234)) << "also where nobody has that number";
  EXPECT_FALSE(config.opt_out.includes(1235));
}

TEST(SiteKeys, ContextsAreForAllGpusOrForSome) {
  const auto parse = [](const char *word, SiteConfig *config) {
    return SiteConfig::parse(1, const_cast<char **>(&word), config);
  };
  std::vector<NodeDevice> devices = {device("GPU-a", 0, "", ""), device("MIG-b/1/0", 1, "", "")};
  devices[0].context = {7, ContextSource::measured};
  SiteConfig config;
  config.context.add_to(&devices);
  EXPECT_EQ(devices[0].context.source, ContextSource::measured) << "the site said nothing";
  ASSERT_FALSE(parse("context=MIG-b/1/0:100M", &config));
  config.context.add_to(&devices);
  EXPECT_EQ(devices[0].context.bytes, 7u);
  EXPECT_EQ(devices[1].context.bytes, 100u << 20);
  ASSERT_FALSE(parse("context=450M,MIG-b/1/0:200M", &config));
  config.context.add_to(&devices);
  EXPECT_EQ(devices[0].context.bytes, 450u << 20);
  EXPECT_EQ(devices[0].context.source, ContextSource::site);
  EXPECT_EQ(devices[1].context.bytes, 200u << 20);
  for (const char *bad : {"context=", "context=50%", "context=450", "context=GPU-a", "context=GPU-a:",
                          "context=TPU-a:1G", "context=GPU-a:1G,GPU-a:2G", "state=relative", "state="}) {
    EXPECT_TRUE(parse(bad, &config)) << bad;
  }
  EXPECT_EQ(config.state, "/var/lib/slurm-vgpu/contexts");
  ASSERT_FALSE(parse("state=off", &config));
  EXPECT_EQ(config.state, "");
}

TEST(SiteKeys, AnErrorChangesNothing) {
  const char *words[] = {"fail=open", "no_such_key=1"};
  SiteConfig config;
  EXPECT_TRUE(SiteConfig::parse(2, const_cast<char **>(words), &config));
  EXPECT_FALSE(config.fail_open);
}

}  // namespace
}  // namespace vgpu::spank
