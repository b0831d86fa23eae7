// Another preloaded tool that wraps an entry point of the driver.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

extern "C" CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
  static const auto next = reinterpret_cast<decltype(&cuMemAlloc_v2)>(dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
  const char line[] = "wrapper: called\n";
  if (next == nullptr || write(2, line, std::strlen(line)) < 0) return CUDA_ERROR_UNKNOWN;
  return next(pointer, bytes);
}
