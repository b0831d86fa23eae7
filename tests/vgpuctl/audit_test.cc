// vgpuctl and NVML: who is counted, and who uses the SMs. On the simulated GPU, with a real client of the driver.
#include "vgpu-run/support.h"

namespace vgpu::test {
namespace {

class VgpuctlAudit : public VgpuRun {
 protected:
  const std::string kVgpuctl = VGPU_BUILD_DIR "/utils/vgpuctl/vgpuctl";
  const std::string kClient = VGPU_BUILD_DIR "/simgpu/simgpu-client";

  // Takes 100 MiB of GPU 0, does what it is told and stays; `launcher` is in front of it.
  std::unique_ptr<Program> start_client(const std::string &launcher, const std::string &order = "") {
    std::ofstream(scratch("orders")) << "ctx 0\nalloc 104857600\n" << order << "\n";
    const std::string script = "(cat $SCRATCH/orders; exec sleep 60) | " + launcher + " " + kClient;
    auto program = std::make_unique<Program>(runtime_.path(), std::vector<std::string>{"/bin/sh", "-c", script});
    EXPECT_TRUE(eventually([&] { return program->out().find("0\n0 ") == 0; })) << program->out() << program->err();
    return program;
  }
  // A client whose orders have been stopped ends by itself, perhaps before its turn comes to be killed: no such process.
  static void stop(const Program &client) {
    const std::string children = "$(ps -o pid= --ppid " + std::to_string(client.pid()) + ")";
    (void)!std::system(("kill " + children + " 2>/dev/null").c_str());
    EXPECT_TRUE(eventually([&] { return !is_running(client.pid()); }));
  }
  Result ctl(const std::vector<std::string> &arguments) const {
    std::vector<std::string> words = {kVgpuctl, "--region-dir", scratch_.path() + "/none"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Program program(scratch_.path(), words);
    const int status = program.wait();
    return {status, program.out(), program.err()};
  }
  // NVML takes a moment to notice a process.
  Result audit() const {
    Result result;
    eventually([&] {
      result = ctl({"audit", "-n", "-P", "--bytes"});
      return !result.out.empty();
    });
    return result;
  }
};

TEST_F(VgpuctlAudit, FindsNothingWhereThereIsNothing) {
  const Result result = ctl({"audit", "-n"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST_F(VgpuctlAudit, NamesWhoIsNotCounted) {
  const auto client = start_client("");
  const Result result = audit();
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_NE(result.out.find("|simgpu-client|GPU-"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("|NOT COUNTED\n"), std::string::npos) << result.out;
  stop(*client);
}

TEST_F(VgpuctlAudit, FindsWhoIsCounted) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the client is not sanitized and cannot load a library that is";
#endif
  const auto client = start_client(VGPU_BUILD_DIR "/utils/vgpu-run/vgpu-run --gpu-mem=1G --");
  Result result = audit();
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("|counted\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("|simgpu-client|0|"), std::string::npos) << result.out;
  result = ctl({"list", "-n", "-P", "--sm", "-o", "gpu,procs,sm-used"});
  EXPECT_EQ(result.out, "0|1|0%\n1|0|0%\n") << result.err;
  stop(*client);
  EXPECT_TRUE(eventually([&] { return regions() == 0; }));
}

// Without NVML, from what the limiter let through. Kernels of which several, one or none fit into a look at them.
TEST_F(VgpuctlAudit, SeesTheShareThatALimitedJobUses) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the client is not sanitized and cannot load a library that is";
#endif
  for (const char *kernel : {"300us", "1ms", "200ms"}) {
    const auto client = start_client(VGPU_BUILD_DIR "/utils/vgpu-run/vgpu-run --gpu-mem=1G --gpu-sm=60 --",
                                     std::string("spin ") + kernel);
    double percent = 0;
    EXPECT_TRUE(eventually([&] {
      percent = std::atof(ctl({"list", "-n", "-P", "-i0", "-o", "sm-used"}).out.c_str());
      return percent >= 50 && percent <= 70;
    })) << kernel
        << ": " << percent;
    stop(*client);
    EXPECT_TRUE(eventually([&] { return regions() == 0; }));
  }
}

TEST_F(VgpuctlAudit, SaysWhyItCannotTell) {
  setenv("LD_LIBRARY_PATH", "/nowhere", 1);
  const Result result = ctl({"audit", "--nvml-library", "/nowhere/libnvidia-ml.so.1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("NVML cannot be loaded"), std::string::npos) << result.err;
  setenv("LD_LIBRARY_PATH", VGPU_BUILD_DIR "/simgpu/13.0", 1);
}

}  // namespace
}  // namespace vgpu::test
