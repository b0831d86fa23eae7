// Streams, their captures, and what launches into them take the program.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "calls.h"

namespace vgpu::test {

namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t us_since(Clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
}

CUresult launch(CUfunction kernel, CUstream stream) {
  return DRIVER(cuLaunchKernel)(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
}

int autotune(CUstream stream, CUfunction kernel, std::uint64_t count, bool chained, Values &out) {
  std::vector<CUevent> events(chained ? count + 1 : 2 * count);
  CUdeviceptr buffer = 0;
  int result = DRIVER(cuMemAlloc_v2)(&buffer, 1 << 20);
  for (CUevent &event : events) result |= DRIVER(cuEventCreate)(&event, 0);
  result |= launch(kernel, stream) | DRIVER(cuStreamSynchronize)(stream);  // the first time is another matter
  if (chained) result |= DRIVER(cuEventRecord)(events[0], stream);
  for (std::uint64_t i = 0; i < count && result == 0; ++i) {
    if (!chained) result |= DRIVER(cuMemsetD8Async)(buffer, 0, 1 << 20, stream);
    if (!chained) result |= DRIVER(cuEventRecord)(events[2 * i], stream);
    result |= launch(kernel, stream) | DRIVER(cuEventRecord)(events[chained ? i + 1 : 2 * i + 1], stream);
  }
  result |= DRIVER(cuStreamSynchronize)(stream);
  std::vector<float> times(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t start = chained ? i : 2 * i;
    result |= DRIVER(cuEventElapsedTime)(&times[i], events[start], events[start + 1]);
  }
  for (const CUevent event : events) result |= DRIVER(cuEventDestroy_v2)(event);
  result |= DRIVER(cuMemFree_v2)(buffer);
  std::sort(times.begin(), times.end());
  out << ' ' << static_cast<std::uint64_t>(1000 * times[count / 2]) << ' '
      << static_cast<std::uint64_t>(1000 * times.back());
  return result;
}

int launches(CUstream stream, CUfunction kernel, std::uint64_t count, Values &out) {
  const auto start = Clock::now();
  std::uint64_t longest = 0;
  CUresult result = CUDA_SUCCESS;
  for (; count > 0 && result == CUDA_SUCCESS; --count) {
    const auto one = Clock::now();
    result = launch(kernel, stream);
    longest = std::max(longest, us_since(one));
  }
  out << ' ' << longest << ' ' << us_since(start);
  return result;
}

// While the launch waits, another thread has the stream wait for 30 ms, and records the event behind that.
int launch_beside_another(CUfunction kernel, CUstream stream, CUevent event) {
  CUcontext context = nullptr;
  int result = DRIVER(cuCtxGetCurrent)(&context);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto sleep = [](void *) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
    result |= DRIVER(cuCtxSetCurrent)(context) | DRIVER(cuLaunchHostFunc)(stream, sleep, nullptr);
    result |= DRIVER(cuEventRecord)(event, stream);
  });
  const CUresult launched = launch(kernel, stream);
  other.join();
  return result | launched;
}

// "EVENT STREAM"
template <typename Record>
int record(Arguments &in, Record call) {
  const auto event = handle<CUevent>(in);
  return call(event, handle<CUstream>(in));
}

// "EVENT EVENT": answers microseconds.
template <typename Elapsed>
int elapsed(Arguments &in, Values &out, Elapsed call) {
  const auto start = handle<CUevent>(in);
  float ms = 0;
  const CUresult result = call(&ms, start, handle<CUevent>(in));
  out << ' ' << static_cast<std::uint64_t>(1000 * ms);
  return result;
}

constexpr Call kCalls[] = {
    CALL(cuEventRecord, { return record(in, DRIVER(cuEventRecord)); }),
    CALL(cuEventRecord_ptsz, { return record(in, DRIVER(cuEventRecord_ptsz)); }),
    CALL(cuEventRecordWithFlags,
         { return record(in, [](CUevent e, CUstream s) { return DRIVER(cuEventRecordWithFlags)(e, s, 0); }); }),
    CALL(cuEventRecordWithFlags_ptsz,
         { return record(in, [](CUevent e, CUstream s) { return DRIVER(cuEventRecordWithFlags_ptsz)(e, s, 0); }); }),
    CALL(cuEventElapsedTime, { return elapsed(in, out, DRIVER(cuEventElapsedTime)); }),
    CALL(cuEventElapsedTime_v2, { return elapsed(in, out, DRIVER(cuEventElapsedTime_v2)); }),
    CALL(cuEventDestroy, { return DRIVER(cuEventDestroy)(handle<CUevent>(in)); }),
    CALL(cuEventDestroy_v2, { return DRIVER(cuEventDestroy_v2)(handle<CUevent>(in)); }),
    // "STREAM KERNEL EVENT"
    CALL(launch_beside_another,
         {
           const auto stream = handle<CUstream>(in);
           const CUfunction kernel = kernel_of(next<std::string>(in));
           return launch_beside_another(kernel, stream, handle<CUevent>(in));
         }),
    // "STREAM KERNEL COUNT EVENT": records the event after each launch.
    CALL(launches_and_records,
         {
           const auto stream = handle<CUstream>(in);
           const CUfunction kernel = kernel_of(next<std::string>(in));
           const std::uint64_t count = number(in);
           const auto event = handle<CUevent>(in);
           int result = 0;
           for (std::uint64_t i = 0; i < count && result == 0; ++i)
             result = launch(kernel, stream) | DRIVER(cuEventRecord)(event, stream);
           return result;
         }),
    // "STREAM KERNEL COUNT CHAINED": as an autotuner does it, so many times: clear, record, kernel, record; or, chained,
    // record, kernel, record, kernel, ... One synchronisation. Answers the median, in microseconds, and the largest.
    CALL(autotune,
         {
           const auto stream = handle<CUstream>(in);
           const CUfunction kernel = kernel_of(next<std::string>(in));
           const std::uint64_t count = number(in);
           return autotune(stream, kernel, count, number(in) != 0, out);
         }),
    CALL(cuStreamDestroy, { return DRIVER(cuStreamDestroy)(handle<CUstream>(in)); }),
    CALL(cuStreamDestroy_v2, { return DRIVER(cuStreamDestroy_v2)(handle<CUstream>(in)); }),
    // "STREAM MODE"
    CALL(begin_capture,
         {
           const auto stream = handle<CUstream>(in);
           return DRIVER(cuStreamBeginCapture_v2)(stream, static_cast<CUstreamCaptureMode>(next<int>(in)));
         }),
    CALL(load, { return kernel_of(next<std::string>(in)) != nullptr ? 0 : -1; }),
    // "COUNT DURATION": as many new kernels, each launched once. Answers how many microseconds that took, with their end.
    CALL(new_kernels,
         {
           const std::uint64_t count = number(in);
           const auto duration = next<std::string>(in);
           std::vector<CUfunction> kernels;
           for (std::uint64_t i = 0; i < count; ++i)
             kernels.push_back(kernel_of("new" + std::to_string(i) + "_" + duration));
           const auto start = Clock::now();
           CUresult result = CUDA_SUCCESS;
           for (const CUfunction kernel : kernels) {
             if (result == CUDA_SUCCESS) result = launch(kernel, nullptr);
           }
           if (result == CUDA_SUCCESS) result = DRIVER(cuCtxSynchronize)();
           out << ' ' << us_since(start);
           return result;
         }),
    // "STREAM KERNEL COUNT": answers how many microseconds the longest launch took, and all of them.
    CALL(launches,
         {
           const auto stream = handle<CUstream>(in);
           const CUfunction kernel = kernel_of(next<std::string>(in));
           return launches(stream, kernel, number(in), out);
         }),
    // The same, of a kernel that belongs to no context.
    CALL(library_launches,
         {
           const auto stream = handle<CUstream>(in);
           const auto kernel = reinterpret_cast<CUfunction>(library_kernel_of(next<std::string>(in)));
           return launches(stream, kernel, number(in), out);
         }),
};

}  // namespace

std::span<const Call> stream_calls() { return kCalls; }

}  // namespace vgpu::test
