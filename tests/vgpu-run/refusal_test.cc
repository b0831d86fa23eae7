// vgpu-run: what it refuses, and how.
#include "support.h"

namespace vgpu::test {
namespace {

using Words = std::vector<std::string>;

TEST_F(VgpuRun, RefusesMistakesWithASentence) {
  const struct {
    Words words;
    const char *sentence;
  } rows[] = {
      {{}, "vgpu-run: the program to run is missing; see vgpu-run --help"},
      {{"--"}, "vgpu-run: the program to run is missing; see vgpu-run --help"},
      {{"-n", "2"}, "vgpu-run: the program to run is missing"},
      {{"--gpu-men=8G", "--", "touch"}, "vgpu-run: there is no option --gpu-men=8G; see"},
      {{"-x", "--", "touch"}, "vgpu-run: there is no option -x; see"},
      {{"-n", "0", "--", "touch"}, "0 not in range 1 to 511"},
      {{"-n", "-1", "--", "touch"}, "vgpu-run: "},
      {{"-n", "512", "--", "touch"}, "512 not in range 1 to 511"},
      {{"-n", "two", "--", "touch"}, "vgpu-run: "},
      {{"-n", "1.5", "--", "touch"}, "vgpu-run: "},
      {{"-n"}, "vgpu-run: "},
      {{"--gpu-mem=8", "--", "touch"}, "vgpu: --gpu-mem=8: the unit is missing; give a size like 8G"},
      {{"--gpu-mem=-8G", "--", "touch"}, "vgpu: --gpu-mem=-8G: a limit cannot be negative"},
      {{"--gpu-mem=", "--", "touch"}, "vgpu"},
      {{"--gpu-mem", "", "--", "touch"}, "vgpu: --gpu-mem=: the value is empty"},
      {{"--gpu-mem=8G,8G,8G", "--", "touch"}, "vgpu: --gpu-mem has 3 values, but there are 2 GPUs"},
      {{"--gpus=2", "--", "touch"}, "vgpu: --gpus: there is no GPU 2: the first is 0, the last 1"},
      {{"--gpus=0,0", "--", "touch"}, "vgpu: --gpus: GPU 0 is there twice; name each once"},
      {{"--gpus=0,x", "--", "touch"}, "vgpu-run: "},
      {{"--gpus=-1", "--", "touch"}, "vgpu-run: "},
      {{"--gpus=1", "--gpu-mem=1G,2G", "--", "touch"}, "vgpu: --gpu-mem has 2 values, but there is 1 GPU"},
      {{"--gpu-sm=0", "--", "touch"}, "vgpu: --gpu-sm=0: that is not within 1 to 100"},
      {{"--gpu-sm=50.5", "--", "touch"}, "vgpu: --gpu-sm=50.5: only whole percentages"},
  };
  for (const auto &row : rows) {
    Words words = row.words;
    const bool would_touch = !words.empty() && words.back() == "touch";
    if (would_touch) words.push_back(scratch("touched"));
    const Result result = run(words);
    const std::string shown = row.words.empty() ? "" : row.words[0];
    EXPECT_EQ(result.status, 2) << shown;
    EXPECT_NE(result.err.find(row.sentence), std::string::npos) << shown << ": " << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(std::filesystem::exists(scratch("touched"))) << shown << " started the program";
  }
}

TEST_F(VgpuRun, NeedsItsLibrary) {
  library_ = "/nonexistent/libvgpu.so";
  Result result = run({"--", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err,
            "vgpu: there is no library /nonexistent/libvgpu.so; install slurm-vgpu, or give --library=PATH\n");
  library_ = scratch("a b.so");
  std::ofstream(library_) << "x";
  result = run({"--", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("blanks and colons"), std::string::npos) << result.err;
}

TEST_F(VgpuRun, WithoutAGpuSaysWhatToLookAt) {
  setenv("SIMGPU_CONFIG", "memory=1GiB; broken=yes; device; device", 1);
  Result result = run({"--", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(
      result.err,
      "vgpu: there is no GPU on this machine: NVML cannot tell about GPU 0: GPU is lost; see what nvidia-smi says\n");

  std::filesystem::create_symlink("/dev/null", scratch("libnvidia-ml.so.1"));
  setenv("LD_LIBRARY_PATH", scratch_.path().c_str(), 1);
  result = run({"--", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("vgpu: NVML "), std::string::npos) << result.err;
  setenv("LD_LIBRARY_PATH", VGPU_BUILD_DIR "/simgpu/13.0", 1);
}

}  // namespace
}  // namespace vgpu::test
