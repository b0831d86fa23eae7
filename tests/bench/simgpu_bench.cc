// What the simulated driver itself costs: it must be cheap enough that what is put on top of it can be seen. Each figure
// is the median of several rounds in one process. Prints figure, value, unit, goal and verdict, separated by tabs.
#include <cuda.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "figure.h"

namespace {

double now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void must(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "simgpu_bench: %s: error %d\n", what, static_cast<int>(result));
  exit(1);
}

// The median over rounds of the mean over a round.
template <typename Work>
double median_ns(int rounds, int count, Work work) {
  std::vector<double> means;
  for (int round = 0; round < rounds; round++) {
    double start = now_ns();
    for (int i = 0; i < count; i++) work();
    means.push_back((now_ns() - start) / count);
  }
  std::sort(means.begin(), means.end());
  return means[means.size() / 2];
}

double pair_ns(size_t bytes) {
  return median_ns(21, 20000, [bytes] {
    CUdeviceptr address;
    must(cuMemAlloc_v2(&address, bytes), "cuMemAlloc_v2");
    must(cuMemFree_v2(address), "cuMemFree_v2");
  });
}

// By their names, the first takes no time on the device and the others do.
const char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n"
    ".visible .entry brief_1us()\n{\n  ret;\n}\n.visible .entry work_250us()\n{\n  ret;\n}\n";

void launch(CUfunction function) {
  must(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
}

// As many launches as the device's queue takes without waiting, then a wait that does not count.
double timed_launch_ns(CUfunction function) {
  constexpr int kCount = 1000;
  std::vector<double> means;
  for (int round = 0; round < 101; round++) {
    double start = now_ns();
    for (int i = 0; i < kCount; i++) launch(function);
    means.push_back((now_ns() - start) / kCount);
    must(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  std::sort(means.begin(), means.end());
  return means[means.size() / 2];
}

// What the node's operator is told that this process has had of the first device.
double busy_ns() {
  std::string tool =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path() / "simgpu/simgpu-ctl";
  FILE *pipe = popen((tool + " busy").c_str(), "re");
  int device, pid;
  double busy = 0, sum = 0;
  while (pipe != nullptr && fscanf(pipe, "%d %d %lf", &device, &pid, &busy) == 3)
    if (device == 0 && pid == getpid()) sum = busy;
  if (pipe != nullptr) pclose(pipe);
  return sum;
}

// A second of kernels, back to back: how far the device's books, and the time it took, are from a second.
double busy_error_percent(CUfunction function) {
  constexpr int kCount = 4000;
  constexpr double kLaunchedNs = kCount * 250e3;
  double before = busy_ns();
  double start = now_ns();
  for (int i = 0; i < kCount; i++) launch(function);
  must(cuCtxSynchronize(), "cuCtxSynchronize");
  double took = now_ns() - start;
  double busy = busy_ns() - before;
  return 100 * std::max(std::abs(busy - kLaunchedNs), std::abs(took - kLaunchedNs)) / kLaunchedNs;
}

}  // namespace

int main() {
  // A node of its own, which ends with the benchmark.
  const char *scratch = getenv("TMPDIR");
  std::string node = std::string(scratch != nullptr ? scratch : "/tmp") + "/simgpu-bench-XXXXXX";
  if (mkdtemp(node.data()) == nullptr) return 1;
  setenv("SIMGPU_NODE", node.c_str(), 1);
  setenv("SIMGPU_CONFIG", "idle_ms=0", 1);
  CUcontext context;
  CUmodule module;
  CUfunction nothing, brief, work;
  must(cuInit(0), "cuInit");
  must(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate_v2");
  must(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
  must(cuModuleGetFunction(&nothing, module, "nothing"), "cuModuleGetFunction");
  must(cuModuleGetFunction(&brief, module, "brief_1us"), "cuModuleGetFunction");
  must(cuModuleGetFunction(&work, module, "work_250us"), "cuModuleGetFunction");
  // The worse of a small allocation, which finds no slab to share and so takes and returns one, and of a whole block.
  bench::print_figure("simgpu.pair_ns", std::max(pair_ns(4096), pair_ns(2 << 20)), "ns", 300);
  bench::print_figure("simgpu.launch_instant_ns", median_ns(21, 200000, [nothing] { launch(nothing); }), "ns", 100);
  bench::print_figure("simgpu.launch_ns", timed_launch_ns(brief), "ns", 150);
  bench::print_figure("simgpu.busy_error_percent", busy_error_percent(work), "percent", 1);
  must(cuCtxDestroy_v2(context), "cuCtxDestroy_v2");
  for (const char *name : {"lock", "kernel.lock", "kernel.sock", "clock"}) unlink((node + "/" + name).c_str());
  rmdir(node.c_str());
  return 0;
}
