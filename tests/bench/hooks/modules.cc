// Modules, of which a program loads hundreds when it starts.
#include <cuda.h>

#include <cstdio>

#include "../clock.h"
#include "../failure.h"
#include "work.h"

namespace bench {

void load_modules() {
  constexpr unsigned kLoads = 200;
  constexpr char kImage[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";
  CUcontext context;
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS) throw Failure("no context");
  const std::uint64_t start = now_ns();
  for (unsigned i = 0; i < kLoads; ++i) {
    CUmodule module;
    if (cuModuleLoadData(&module, kImage) != CUDA_SUCCESS) throw Failure("module %u was not loaded", i);
  }
  std::printf("%f\n", static_cast<double>(now_ns() - start) / 1000 / kLoads);
}

}  // namespace bench
