// What the simulated driver itself costs: it must be cheap enough that what is put on top of it can be seen. Each figure
// is the median of several rounds in one process. Prints figure, value, unit, goal and verdict, separated by tabs.
#include <cuda.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
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

const char kPtx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";

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
  CUfunction function;
  must(cuInit(0), "cuInit");
  must(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate_v2");
  must(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
  must(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction");
  // The worse of a small allocation, which finds no slab to share and so takes and returns one, and of a whole block.
  bench::print_figure("simgpu.pair_ns", std::max(pair_ns(4096), pair_ns(2 << 20)), "ns", 300);
  double launch_ns = median_ns(21, 200000, [function] {
    must(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
  });
  bench::print_figure("simgpu.launch_ns", launch_ns, "ns", 100);
  must(cuCtxDestroy_v2(context), "cuCtxDestroy_v2");
  unlink((node + "/lock").c_str());
  unlink((node + "/kernel.sock").c_str());
  rmdir(node.c_str());
  return 0;
}
