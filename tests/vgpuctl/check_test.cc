// vgpuctl check.
#include "support.h"

namespace vgpu::test {
namespace {

TEST_F(Vgpuctl, ChecksTheNode) {
  if (!std::filesystem::exists(VGPU_BUILD_DIR "/libvgpu/libvgpu.so")) GTEST_SKIP() << "there is no library to look at";
  create(100, 0, {kGiB});
  const auto check = [&] {
    return run({"check", "--nvml-library", VGPU_BUILD_DIR "/tests/vgpu-probe/fake_nvml.so", "--library",
                VGPU_BUILD_DIR "/libvgpu/libvgpu.so", "--plugin", VGPU_BUILD_DIR "/spank/spank_vgpu.so"});
  };
  Result result = check();
  EXPECT_NE(result.out.find("regions: 1, none stale"), std::string::npos) << result.out;
  const bool on_tmpfs = regions_.path().rfind("/dev/shm/", 0) == 0;
  EXPECT_NE(result.out.find(on_tmpfs ? "root's, mode 0755, tmpfs" : "is not on a tmpfs"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("libvgpu.so: needs glibc 2."), std::string::npos) << result.out;
  chmod(regions_.path().c_str(), 0777);
  result = check();
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("with mode 0777; chown root and chmod 0755"), std::string::npos) << result.out;
  chmod(regions_.path().c_str(), 0755);
  EXPECT_TRUE(add_rank(100).reserve(kMiB));
  ranks_.back()->end(SIGKILL);
  result = check();
  EXPECT_NE(result.out.find("warn  job 100 of root: all of its processes are dead"), std::string::npos) << result.out;
  result = run({"check", "--pid", std::to_string(getpid())});
  EXPECT_NE(result.out.find("libvgpu.so is not loaded"), std::string::npos) << result.out;
}

// ---- plugstack.conf -------------------------------------------------------------------------------------------------

class VgpuctlPlugstack : public Vgpuctl {
 protected:
  const std::string plugin_ = VGPU_BUILD_DIR "/spank/spank_vgpu.so";

  void SetUp() override {
    if (!std::filesystem::exists(plugin_)) GTEST_SKIP() << "there is no plugin to look at";
    Vgpuctl::SetUp();
  }
  void write(const std::string &name, const std::string &text) const { std::ofstream(conf(name)) << text; }
  std::string check(const std::vector<std::string> &more = {}) const {
    std::vector<std::string> words = {"check"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words).out;
  }
  static bool has(const std::string &text, const std::string &line) { return text.find(line + "\n") != text.npos; }
  std::string keys() const {
    return " region_dir=" + regions_.path() + " library=" VGPU_BUILD_DIR "/libvgpu/libvgpu.so";
  }
};

TEST_F(VgpuctlPlugstack, IsFoundAndReadAsSlurmDoes) {
  EXPECT_TRUE(
      has(check(), "warn  " + conf("plugstack.conf") + " cannot be read; give --plugstack=FILE if it is elsewhere"));
  write("plugstack.conf", "# required spank_vgpu.so\ninclude plugstack.conf.d/*.conf\n");
  EXPECT_TRUE(has(check(), "fail  " + conf("plugstack.conf") +
                               ": does not load spank_vgpu.so, so no job has limits; nothing is included by " +
                               conf("plugstack.conf") + ":2 (" + conf("plugstack.conf.d/*.conf") +
                               "); add a line: required spank_vgpu.so"))
      << check();
  write("plugstack.conf.d/a.conf", "optional other.so\n");
  write("plugstack.conf.d/vgpu.conf", "\n\trequired " + plugin_ + keys() + " overcommit=1.5 # half as much again\n");
  std::string out = check();
  EXPECT_TRUE(has(out, "ok    " + conf("plugstack.conf.d/vgpu.conf") + ":2: required, overcommit=1.5")) << out;
  EXPECT_TRUE(has(out, "ok    " + plugin_ + ": version " VGPU_VERSION)) << out;
  // Elsewhere, as slurm.conf says; and where somebody says who knows better.
  write("other.conf", "optional " + plugin_ + keys() + "\nrequired " + plugin_ + "\n");
  write("slurm.conf", "ClusterName=c\nplugstackconfig=" + conf("other.conf") + "\n");
  out = check();
  EXPECT_TRUE(has(out, "warn  " + conf("other.conf") +
                           ":1: the plugin is optional: where it fails, tasks run without limits; write required"))
      << out;
  EXPECT_TRUE(has(out, "warn  " + conf("other.conf") +
                           ":1: loads the plugin, and so do 1 more lines, which Slurm ignores; remove them"))
      << out;
  EXPECT_NE(check({"--plugstack", conf("plugstack.conf")}).find("overcommit=1.5"), std::string::npos);
  // A file that includes itself ends, too.
  write("plugstack.conf.d/a.conf", "include a.conf\n");
  EXPECT_NE(check({"--plugstack", conf("plugstack.conf")}).find("overcommit=1.5"), std::string::npos);
}

TEST_F(VgpuctlPlugstack, IsUnderstoodAsThePluginDoes) {
  write("plugstack.conf", "required " + plugin_ + " overcommit=0.5\n");
  std::string out = check();
  EXPECT_NE(out.find("fail  plugstack.conf: overcommit=0.5: that is not a factor from 1 to 100"), out.npos) << out;
  write("plugstack.conf", "required " + plugin_ + " nonsense=1\n");
  out = check();
  EXPECT_NE(out.find("fail  plugstack.conf: 'nonsense' is not a key that this plugin knows"), out.npos) << out;
  write("plugstack.conf", "required " + plugin_ + " library=/none/libvgpu.so\n");
  out = check();
  EXPECT_NE(out.find("regions are in /run/vgpu, but vgpuctl looks in " + regions_.path()), out.npos) << out;
  EXPECT_NE(out.find("fail  there is no library /none/libvgpu.so"), out.npos) << "that is what tasks get: " << out;
}

TEST_F(VgpuctlPlugstack, NamesThePluginThatSlurmLoads) {
  write("plugstack.conf", "required spank_vgpu.so\n");
  write("slurm.conf", "PluginDir=/none:" VGPU_BUILD_DIR "/spank\n");
  std::string out = check();
  EXPECT_TRUE(has(out, "ok    " + plugin_ + ": version " VGPU_VERSION)) << out;
  write("slurm.conf", "PluginDir=/none\n");
  const Result result = run({"check"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.out,
                  "fail  spank_vgpu.so: cannot be read; install it where Slurm looks (PluginDir), or give "
                  "--plugin=PATH"))
      << result.out;
  std::ofstream(scratch_.path() + "/spank_vgpu.so") << "slurm-vgpu version 0.0.1";
  write("plugstack.conf", "required " + scratch_.path() + "/spank_vgpu.so\n");
  out = check();
  EXPECT_NE(out.find("/spank_vgpu.so: version 0.0.1, but this is vgpuctl " VGPU_VERSION), out.npos) << out;
}

// ---- contexts -------------------------------------------------------------------------------------------------------

class VgpuctlContexts : public VgpuctlPlugstack {
 protected:
  void SetUp() override {
    VgpuctlPlugstack::SetUp();
    // CUDA is looked for beside NVML; the GPUs are those of the fake driver.
    for (const char *name : {"libnvidia-ml.so.1", "libcuda.so.1"}) {
      std::filesystem::create_symlink(VGPU_BUILD_DIR "/tests/vgpu-probe/fake_nvml.so", scratch_.path() + "/" + name);
    }
    Node node;
    for (unsigned i = 0; i < 2; ++i) {
      node.devices.push_back(make_device(i));
      node.devices[i].gpu_uuid = "GPU-0000000" + std::to_string(i + 1);
      assign(node.devices[i].identity.uuid, node.devices[i].gpu_uuid);
    }
    ASSERT_FALSE(write_node(regions_.path() + "/node", node));
    write("plugstack.conf", "required " + plugin_ + keys() + " state=" + state() + "\n");
  }
  std::string state() const { return scratch_.path() + "/lib/contexts"; }
  std::string checked(bool measures) const {
    std::vector<std::string> words = {"--nvml-library", scratch_.path() + "/libnvidia-ml.so.1"};
    if (measures) words.push_back("--measure");
    return check(words);
  }
};

TEST_F(VgpuctlContexts, AreMeasuredWhenRootSaysSo) {
  std::string out = checked(false);
  EXPECT_TRUE(has(out,
                  "warn  contexts: what one takes is not known for GPU 0, GPU 1; run vgpuctl check --measure while "
                  "nobody uses them, or set context= in plugstack.conf"))
      << out;
  EXPECT_FALSE(std::filesystem::exists(state())) << "nobody asked for that";
  out = checked(true);
  for (const char *gpu : {"GPU 0", "GPU 1"}) {
    EXPECT_TRUE(
        has(out, std::string("ok    ") + gpu +
                     ": a context takes 300MiB, 39GiB can be had in all, in blocks of 4MiB; measured with driver "
                     "580.95.05"))
        << out;
  }
  EXPECT_NE(read_file(state()).find("context uuid=GPU-00000002 driver=580.95.05 bytes=314572800"), std::string::npos);
  EXPECT_NE(read_file(regions_.path() + "/node").find("context=314572800 context-from=measured"), std::string::npos);
  out = checked(false);
  EXPECT_TRUE(has(out, "ok    contexts: known for all GPUs")) << out;
}

// A rank that is in its region, and holds more than it counts there.
TEST_F(VgpuctlContexts, ThatAreMissingInTheBooksAreSeen) {
  DeviceSpec spec;
  assign(spec.identity.uuid, "GPU-00000001");
  spec.memory_limit = kGiB;
  const RegionSpec region = {100, 0, false, 1, &spec};
  ASSERT_FALSE(Region::create(regions_.path().c_str(), "100", region));
  RankProcess &rank = add_rank(100);
  ASSERT_TRUE(rank.reserve(100 * kMiB));
  const auto verdict_of = [&](std::uint64_t mib) {
    setenv("FAKE_NVML_PROCESS", (std::to_string(rank.pid()) + " " + std::to_string(mib * kMiB)).c_str(), 1);
    const Result result = run({"audit", "-n", "-P", "--nvml-library", scratch_.path() + "/libnvidia-ml.so.1"});
    unsetenv("FAKE_NVML_PROCESS");
    const std::string line = result.out.substr(0, result.out.find('\n'));
    return line.substr(line.rfind('|') + 1);
  };
  EXPECT_EQ(verdict_of(100), "counted");
  EXPECT_EQ(verdict_of(132), "counted");
  EXPECT_EQ(verdict_of(428), "counted, but 328MiB too little");
  // Root's reader settles it: what a rank that sleeps has beyond its books is its context.
  ASSERT_TRUE(rank.reserve(64 * kMiB, 0, Kind::context));
  setenv("FAKE_NVML_PROCESS", (std::to_string(rank.pid()) + " " + std::to_string(428 * kMiB)).c_str(), 1);
  const Result metrics = run({"metrics", "--nvml-library", scratch_.path() + "/libnvidia-ml.so.1"});
  unsetenv("FAKE_NVML_PROCESS");
  EXPECT_NE(metrics.out.find("Hostname=\"n1\"} 448790528\n"), std::string::npos) << metrics.out;
  EXPECT_EQ(rank.memory_used(), 428 * kMiB);
  EXPECT_EQ(verdict_of(428), "counted");
}

TEST_F(VgpuctlContexts, AreNotMeasuredUnderAJob) {
  DeviceSpec spec;
  assign(spec.identity.uuid, "GPU-00000001");
  spec.memory_limit = kGiB;
  const RegionSpec region = {100, 0, false, 1, &spec};
  ASSERT_FALSE(Region::create(regions_.path().c_str(), "100", region));
  const std::string out = checked(true);
  EXPECT_TRUE(has(out, "warn  GPU GPU-00000001: job 100 has a region for it, so no context is measured there now"))
      << out;
  EXPECT_NE(out.find("ok    GPU 1: a context takes 300MiB"), out.npos) << out;
}

TEST_F(VgpuctlContexts, AreWhatTheSiteSays) {
  write("plugstack.conf", "required " + plugin_ + keys() + " state=off context=GPU-00000002:450M\n");
  std::string out = checked(false);
  EXPECT_NE(out.find("not known for GPU 0;"), out.npos) << out;
  out = checked(true);
  EXPECT_NE(out.find("kept until slurmd starts again, because of state=off"), out.npos) << out;
  EXPECT_NE(out.find("; jobs get 450MiB, as the site says\n"), out.npos) << out;
}

TEST_F(VgpuctlContexts, InAFileOfSomebodyElsesAreAnError) {
  std::filesystem::create_directories(scratch_.path() + "/lib");
  std::ofstream(state()) << "vgpu-contexts 1\nend 0\n";
  ASSERT_EQ(chown(state().c_str(), 1, 1), 0);
  const std::string out = checked(false);
  EXPECT_TRUE(has(out, "fail  " + state() + " belongs to uid 1, not to root")) << out;
}

}  // namespace
}  // namespace vgpu::test
