// Streams, their captures, and what launches into them take the program.
#include <algorithm>
#include <chrono>
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

constexpr Call kCalls[] = {
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
           const auto start = Clock::now();
           std::uint64_t longest = 0;
           CUresult result = CUDA_SUCCESS;
           for (std::uint64_t left = number(in); left > 0 && result == CUDA_SUCCESS; --left) {
             const auto one = Clock::now();
             result = launch(kernel, stream);
             longest = std::max(longest, us_since(one));
           }
           out << ' ' << longest << ' ' << us_since(start);
           return result;
         }),
};

}  // namespace

std::span<const Call> stream_calls() { return kCalls; }

}  // namespace vgpu::test
