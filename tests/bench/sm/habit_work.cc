#include "habit_work.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <thread>

#include "../clock.h"
#include "../statistics.h"
#include "kernels.h"

namespace bench {

namespace {

constexpr unsigned kLongest = 60;  // seconds: who still waits then is taken for dead

std::string numbered(unsigned index) { return "kernel" + std::to_string(index) + "_1ms"; }

std::vector<CUfunction> load_many(unsigned count) {
  std::string entries;
  for (unsigned i = 0; i < count; ++i) entries += entry(numbered(i));
  const CUmodule module = load(entries);
  std::vector<CUfunction> functions;
  for (unsigned i = 0; i < count; ++i) functions.push_back(function_of(module, numbered(i)));
  return functions;
}

// Beside a capture of mode "global" a thread may launch, and must not ask for the state of anything.
double beside_a_capture(std::uint64_t duration) {
  constexpr std::uint64_t kEach = 250 * kMillisecond;
  const std::vector<CUfunction> functions = load_many(static_cast<unsigned>(duration / kEach) + 1);
  const CUstream captured = make_stream(), other = make_stream();
  Kernels known;
  launch(known.find("1us"), captured);
  must(cuStreamSynchronize(captured), "cuStreamSynchronize");

  must(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  const std::uint64_t start = now_ns(), until = start + duration;
  std::uint64_t longest = 0;
  CUcontext context;
  must(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  CUresult result = CUDA_SUCCESS;
  std::thread launcher([&] {
    result = cuCtxSetCurrent(context);
    for (std::uint64_t now = now_ns(); now < until && result == CUDA_SUCCESS;) {
      CUfunction function = functions[(now - start) / kEach];
      result = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, other, nullptr, nullptr);
      const std::uint64_t after = now_ns();
      longest = std::max(longest, after - now);
      now = after;
    }
  });
  while (now_ns() < until) {
    launch(known.find("1us"), captured);
    sleep_ns(10 * kMillisecond);
  }
  CUgraph graph;
  const CUresult end = cuStreamEndCapture(captured, &graph);
  launcher.join();
  must(result, "a launch beside a capture");
  must(end, "the capture");
  return 1e-6 * static_cast<double>(longest);
}

double once_each(unsigned count) {
  const std::vector<CUfunction> functions = load_many(count);
  const CUstream stream = make_stream();
  const std::uint64_t start = now_ns();
  for (CUfunction function : functions) launch(function, stream);
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");
  return 1e-6 * static_cast<double>(now_ns() - start);
}

// As many small ones as large ones: of 1 to 10 blocks as many as of 1000 to 10,000.
void random_shapes(std::uint64_t until) {
  constexpr double kShapes = 20'000;
  const CUfunction function = function_of(load(entry("shaped")), "shaped");
  const CUstream stream = make_stream();
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(0, std::log(kShapes));
  while (now_ns() < until) launch(function, stream, static_cast<unsigned>(std::exp(exponent(random))));
}

// As those who choose the fastest of several kernels measure them: everything is launched, then it is waited for once.
double timed_by_events(unsigned count, bool chained) {
  constexpr std::size_t kCleared = 1 << 20;
  Kernels kernels;
  CUfunction function = kernels.find("1ms");
  const CUstream stream = make_stream();
  CUdeviceptr memory;
  must(cuMemAlloc_v2(&memory, kCleared), "cuMemAlloc");
  std::vector<CUevent> events(chained ? count + 1 : 2 * count);
  for (CUevent &event : events) must(cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate");
  const auto record = [&](std::size_t index) { must(cuEventRecord(events[index], stream), "cuEventRecord"); };
  launch(function, stream);
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");

  if (chained) record(0);
  for (unsigned i = 0; i < count; ++i) {
    if (!chained) {
      must(cuMemsetD32Async(memory, 0, kCleared / 4, stream), "cuMemsetD32Async");
      record(2 * i);
    }
    launch(function, stream);
    record(chained ? i + 1 : 2 * i + 1);
  }
  must(cuStreamSynchronize(stream), "cuStreamSynchronize");
  std::vector<double> times;
  for (unsigned i = 0; i < count; ++i) {
    float ms = 0;
    const std::size_t first = chained ? i : 2 * i;
    must(cuEventElapsedTime(&ms, events[first], events[first + 1]), "cuEventElapsedTime");
    times.push_back(static_cast<double>(ms));
  }
  return median(times);
}

}  // namespace

bool habit_work(const std::vector<std::string> &arguments) {
  const std::string &kind = arguments.at(0);
  const bool known = kind == "capture" || kind == "lazy" || kind == "shapes" || kind == "pairs" || kind == "chain";
  if (!known) return false;
  alarm(kLongest);
  make_context(std::stoi(arguments.at(1)));
  const std::uint64_t number = std::stoull(arguments.at(2));
  const auto count = static_cast<unsigned>(number);
  if (kind == "shapes") {
    random_shapes(number);
    return true;
  }
  std::printf("%.17g\n", kind == "capture" ? beside_a_capture(number)
                         : kind == "lazy"  ? once_each(count)
                                           : timed_by_events(count, kind == "chain"));
  return true;
}

}  // namespace bench
