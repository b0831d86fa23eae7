// Memory and time that come with no allocation: contexts, code, the first launch, stacks, buffers.
#include <cstdio>
#include <functional>

#include "kernels.h"
#include "tables.h"

namespace tables {

namespace {

CUmodule module;

CUresult launch(const char *name) {
  CUfunction function = nullptr;
  CUdeviceptr none = 0;
  void *parameters[] = {&none};
  CUresult result = CU(cuModuleGetFunction)(&function, module, name);
  if (result == CUDA_SUCCESS) result = CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr);
  return result != CUDA_SUCCESS ? result : CU(cuCtxSynchronize)();
}

}  // namespace

int growth() {
  std::uint64_t idle = 0, with_context = 0;
  device_used(&idle);
  const Clock::time_point start = Clock::now();
  make_context();
  const double context_ms = seconds_since(start) * 1e3;
  sleep_ms(300);
  device_used(&with_context);
  Table table(34, {"what", "took us", "took MiB", "result"});
  table.add({"primary context (by NVML)", format("%.0f", context_ms * 1e3), mib(with_context - idle), ""});
  const auto row = [&](const char *what, const std::function<CUresult()> &call) {
    const std::uint64_t before = free_bytes();
    const Clock::time_point begin = Clock::now();
    const CUresult result = call();
    const double us = seconds_since(begin) * 1e6;
    table.add({what, format("%.0f", us), mib_signed(static_cast<std::int64_t>(before - free_bytes())),
               result == CUDA_SUCCESS ? "" : name_of(result)});
  };
  const std::string image = kernels();
  row("module loaded", [&] { return CU(cuModuleLoadData)(&module, image.c_str()); });
  row("first launch of a kernel", [] { return launch("empty"); });
  row("second launch", [] { return launch("empty"); });
  row("first launch of another kernel", [] { return launch("spin_5us"); });
  row("launch with 2 KiB of local memory", [] { return launch("deep"); });
  row("the same again", [] { return launch("deep"); });
  row("stack of 4 KiB set", [] { return CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096); });
  row("launch after that", [] { return launch("empty"); });
  row("printf buffer of 64 MiB set", [] { return CU(cuCtxSetLimit)(CU_LIMIT_PRINTF_FIFO_SIZE, 64 << 20); });
  row("heap of 128 MiB set", [] { return CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 128 << 20); });
  CUstream stream = nullptr;
  row("a stream", [&] { return CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING); });
  CUdeviceptr pointer = 0;
  row("cuMemAllocAsync of 1 MiB", [&] { return CU(cuMemAllocAsync)(&pointer, 1 << 20, stream); });
  row("cuMemFreeAsync, synchronised", [&] {
    CU(cuMemFreeAsync)(pointer, stream);
    return CU(cuStreamSynchronize)(stream);
  });
  row("module unloaded", [] { return CU(cuModuleUnload)(module); });
  conclude(format("a bare context takes %s MiB and %.0f ms", mib(with_context - idle).c_str(), context_ms));
  return 0;
}

}  // namespace tables
