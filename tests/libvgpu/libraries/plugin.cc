// A plugin that was linked with -lcuda. BY_DEFAULT: it still asks the loader for the functions, in its own scope.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "../programs/steps.h"

#ifdef BY_DEFAULT

#include <dlfcn.h>

#define FOUND(function) reinterpret_cast<decltype(&function)>(dlsym(RTLD_DEFAULT, #function))

extern "C" int plugin_start() {
  int version = 0;
  if (report("version", cuDriverGetVersion(&version)) != 0) return 1;  // so that the linker keeps the dependency
  return run_steps(
      {FOUND(cuInit), FOUND(cuCtxCreate_v2), FOUND(cuMemAlloc_v2), FOUND(cuMemFree_v2), FOUND(cuMemGetInfo_v2)});
}

#else

extern "C" int plugin_start() {
  return run_steps({cuInit, cuCtxCreate_v2, cuMemAlloc_v2, cuMemFree_v2, cuMemGetInfo_v2});
}

#endif
