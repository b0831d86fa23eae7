// What every client does once it has found the driver's functions, however it did, so that all can be judged alike.
//
// Prints "WHAT RESULT" lines. After "holding" it waits for a line, or the end, of its input. Ends with 0 if all went as
// under a limit of 512 MiB on a device where a context takes 64 MiB.
#pragma once

#include <cuda.h>

#include <cstdio>

struct Functions {
  decltype(&cuInit) init;
  decltype(&cuCtxCreate_v2) create;
  decltype(&cuMemAlloc_v2) alloc;
  decltype(&cuMemFree_v2) free;
  decltype(&cuMemGetInfo_v2) info;
};

inline int report(const char *what, int result) {
  std::printf("%s %d\n", what, result);
  std::fflush(stdout);
  return result;
}

inline void hold() {
  std::puts("holding");
  std::fflush(stdout);
  char line[64];
  if (std::fgets(line, sizeof line, stdin) == nullptr) return;
}

inline int run_steps(const Functions &driver) {
  constexpr size_t kMiB = 1 << 20;
  constexpr CUdeviceptr kUntouched = 0x1234;
  CUcontext context;
  CUdeviceptr held = 0, refused = kUntouched;
  size_t free = 0, total = 0;
  if (driver.init == nullptr) return report("init", -1) != 0;
  if (report("init", driver.init(0)) != 0) return 1;
  if (report("create", driver.create(&context, 0, 0)) != 0) return 1;
  if (report("alloc", driver.alloc(&held, 100 * kMiB)) != 0) return 1;
  hold();
  bool good = report("info", driver.info(&free, &total)) == 0 && total == 512 * kMiB && free == 348 * kMiB;
  good =
      report("over", driver.alloc(&refused, 400 * kMiB)) == CUDA_ERROR_OUT_OF_MEMORY && refused == kUntouched && good;
  good = report("free", driver.free(held)) == 0 && good;
  good = report("again", driver.alloc(&held, 400 * kMiB)) == 0 && good;
  good = report("free", driver.free(held)) == 0 && good;
  return good ? 0 : 1;
}
