// What launches and events cost the host, and when their end is seen.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "kernels.h"
#include "tables.h"

namespace tables {

namespace {

CUstream stream;
CUfunction empty_kernel, long_kernel;

void launch(CUfunction function) {
  CUdeviceptr none = 0;
  void *parameters[] = {&none};
  check(CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr), "cuLaunchKernel");
}
void wait() { check(CU(cuStreamSynchronize)(stream), "cuStreamSynchronize"); }

// Microseconds of each of `count` calls, by the quickest of five rounds. `between` is not measured.
double cost(unsigned count, const std::function<void()> &call, const std::function<void()> &between) {
  double least = 1e9;
  for (int round = 0; round < 5; ++round) {
    const Clock::time_point start = Clock::now();
    for (unsigned i = 0; i < count; ++i) call();
    least = std::min(least, seconds_since(start) * 1e6 / count);
    between();
  }
  return least;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Seen {
  double elapsed_us, host_us;
};

// A kernel of 200 us between two events: how long it took by the events, and by a host that polls for its end.
Seen see_kernel(CUevent begin, CUevent end) {
  std::vector<double> elapsed, host;
  for (int i = 0; i < 25; ++i) {
    const Clock::time_point start = Clock::now();
    check(CU(cuEventRecord)(begin, stream), "cuEventRecord");
    launch(long_kernel);
    check(CU(cuEventRecord)(end, stream), "cuEventRecord");
    while (CU(cuEventQuery)(end) == CUDA_ERROR_NOT_READY) {
    }
    host.push_back(seconds_since(start) * 1e6);
    float ms = 0;
    check(CU(cuEventElapsedTime)(&ms, begin, end), "cuEventElapsedTime");
    elapsed.push_back(ms * 1e3);
  }
  return {median(elapsed), median(host)};
}

}  // namespace

int events() {
  make_context();
  const std::string image = kernels();
  CUmodule module = nullptr;
  CUevent timed = nullptr, other = nullptr, untimed = nullptr;
  check(CU(cuModuleLoadData)(&module, image.c_str()), "cuModuleLoadData");
  check(CU(cuModuleGetFunction)(&empty_kernel, module, "empty"), "cuModuleGetFunction");
  check(CU(cuModuleGetFunction)(&long_kernel, module, "spin_200us"), "cuModuleGetFunction");
  check(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(CU(cuEventCreate)(&timed, CU_EVENT_DEFAULT), "cuEventCreate");
  check(CU(cuEventCreate)(&other, CU_EVENT_DEFAULT), "cuEventCreate");
  check(CU(cuEventCreate)(&untimed, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  launch(empty_kernel);
  launch(long_kernel);
  wait();

  Table table(48, {"call", "us each"});
  const auto row = [&](const char *what, double us) { table.add({what, format("%.2f", us)}); };
  CUcontext context = nullptr;
  const double launch_us = cost(
      200, [] { launch(empty_kernel); }, wait);
  const double record_us = cost(
      200,
      [&] {
        CU(cuEventRecord)
        (timed, stream);
      },
      wait);
  row("cuCtxGetCurrent", cost(
                             1000,
                             [&] {
                               CU(cuCtxGetCurrent)
                               (&context);
                             },
                             wait));
  row("cuLaunchKernel of an empty kernel", launch_us);
  row("... and waiting for it", cost(
                                    100, [] { launch(empty_kernel), wait(); }, wait));
  row("cuEventRecord", record_us);
  row("cuEventRecord, without timing", cost(
                                           200,
                                           [&] {
                                             CU(cuEventRecord)
                                             (untimed, stream);
                                           },
                                           wait));
  row("cuEventQuery of one that ended", cost(
                                            1000,
                                            [&] {
                                              CU(cuEventQuery)
                                              (timed);
                                            },
                                            wait));
  row("cuEventSynchronize of one that ended", cost(
                                                  1000,
                                                  [&] {
                                                    CU(cuEventSynchronize)
                                                    (timed);
                                                  },
                                                  wait));
  row("cuMemAlloc + cuMemFree of 4 KiB", cost(
                                             200,
                                             [] {
                                               CUdeviceptr pointer = 0;
                                               check(CU(cuMemAlloc_v2)(&pointer, 4096), "cuMemAlloc");
                                               CU(cuMemFree_v2)(pointer);
                                             },
                                             wait));
  row("cuMemAlloc + cuMemFree of 8 MiB", cost(
                                             50,
                                             [] {
                                               CUdeviceptr pointer = 0;
                                               check(CU(cuMemAlloc_v2)(&pointer, 8 << 20), "cuMemAlloc");
                                               CU(cuMemFree_v2)(pointer);
                                             },
                                             wait));
  row("cuMemGetInfo", cost(
                          100, [] { free_bytes(); }, wait));

  std::vector<double> nothing;
  for (int i = 0; i < 50; ++i) {
    float ms = 0;
    CU(cuEventRecord)(timed, stream);
    CU(cuEventRecord)(other, stream);
    wait();
    CU(cuEventElapsedTime)(&ms, timed, other);
    nothing.push_back(ms * 1e3);
  }
  const Seen seen = see_kernel(timed, other);
  row("between two events with nothing between", median(nothing));
  row("between two events, a kernel of 200 us", seen.elapsed_us);
  row("the same, by a host that polls for its end", seen.host_us);
  conclude(format("a launch takes %.2f us, a timed event %.2f us", launch_us, record_us));
  return 0;
}

}  // namespace tables
