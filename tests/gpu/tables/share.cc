// A program that keeps the device as busy as it may, with kernels of one length. Prints launches, and the percentage of time
// in which a kernel ran.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels.h"
#include "tables.h"

namespace tables {

namespace {

struct Interval {
  std::uint64_t begin, end;  // of the device's clock, in nanoseconds
};

double kernel_seconds(const std::string &kernel) {
  char *unit = nullptr;
  const double number = std::strtod(kernel.c_str(), &unit);
  return number * (std::string(unit) == "us" ? 1e-6 : 1e-3);
}

// The time in which at least one of them ran. Sorts them.
double covered_seconds(std::vector<Interval> *intervals) {
  std::sort(intervals->begin(), intervals->end(),
            [](const Interval &a, const Interval &b) { return a.begin < b.begin; });
  std::uint64_t covered = 0, reached = 0;
  for (const Interval &one : *intervals) {
    const std::uint64_t begin = std::max(one.begin, reached);
    if (one.end > begin) covered += one.end - begin;
    reached = std::max(reached, one.end);
  }
  return static_cast<double>(covered) * 1e-9;
}

class Stream {
 public:
  Stream() {
    check(CU(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUevent &event : ends_) check(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
  void launch(CUfunction function, CUdeviceptr record) {
    void *parameters[] = {&record};
    check(CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
  }
  // Waits until at most the launches since the last call are left: the device always has some, and never many.
  void pace() {
    check(CU(cuEventRecord)(ends_[turn_], stream_), "cuEventRecord");
    turn_ ^= 1;
    check(CU(cuEventSynchronize)(ends_[turn_]), "cuEventSynchronize");
  }

 private:
  CUstream stream_ = nullptr;
  CUevent ends_[2] = {};
  unsigned turn_ = 0;
};

}  // namespace

int share(const std::string &kernel, unsigned streams, double seconds) {
  make_context();
  const std::string image = kernels();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  check(CU(cuModuleLoadData)(&module, image.c_str()), "cuModuleLoadData");
  check(CU(cuModuleGetFunction)(&function, module, ("spin_" + kernel).c_str()), "cuModuleGetFunction");
  const double length = kernel_seconds(kernel);
  const unsigned batch = std::max(1u, static_cast<unsigned>(2e-3 / length));
  const size_t room = static_cast<size_t>(streams * (seconds / length + 2 * batch)) + 16;
  CUdeviceptr records = 0;
  check(CU(cuMemAlloc_v2)(&records, room * sizeof(Interval)), "cuMemAlloc");
  check(CU(cuMemsetD8_v2)(records, 0, room * sizeof(Interval)), "cuMemsetD8");
  std::vector<Stream> all(streams);

  // A fifth of the time first, in which costs are learned and what was saved is used up; none of that is recorded.
  size_t launches = 0;
  const auto run = [&](double time, bool is_recorded) {
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < time) {
      for (Stream &one : all) {
        for (unsigned i = 0; i < batch; ++i) {
          const bool has_room = is_recorded && launches < room;
          one.launch(function, has_room ? records + launches * sizeof(Interval) : 0);
          if (is_recorded) ++launches;
        }
        one.pace();
      }
    }
    check(CU(cuCtxSynchronize)(), "cuCtxSynchronize");
    return seconds_since(start);
  };
  run(seconds / 5, false);
  const double took = run(seconds, true);

  std::vector<Interval> intervals(std::min(launches, room));
  check(CU(cuMemcpyDtoH_v2)(intervals.data(), records, intervals.size() * sizeof(Interval)), "cuMemcpyDtoH");
  double busy = covered_seconds(&intervals);
  const bool is_measured = busy > 0;
  if (!is_measured) busy = static_cast<double>(launches) * length;  // a simulated device runs one after the other
  std::printf("%zu %.2f %s\n", launches, 100 * busy / took, is_measured ? "by the device's clock" : "by the launches");
  return 0;
}

}  // namespace tables
