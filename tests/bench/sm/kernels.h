// Kernels that take a known time, for the ranks of sm_bench.
#pragma once

#include <cuda.h>

#include <map>
#include <string>

#include "../failure.h"

namespace bench {

inline void must(CUresult result, const char *what) {
  if (result != CUDA_SUCCESS) throw Failure("%s: error %d", what, static_cast<int>(result));
}

inline void make_context(int ordinal) {
  CUcontext context;
  must(cuInit(0), "cuInit");
  must(cuCtxCreate_v2(&context, 0, ordinal), "cuCtxCreate");
}

inline CUstream make_stream() {
  CUstream stream;
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

inline std::string entry(const std::string &name) { return ".visible .entry " + name + "()\n{\n  ret;\n}\n"; }

inline CUmodule load(const std::string &entries) {
  CUmodule module;
  must(cuModuleLoadData(&module, (".version 7.0\n.target sm_70\n.address_size 64\n" + entries).c_str()),
       "cuModuleLoadData");
  return module;
}

inline CUfunction function_of(CUmodule module, const std::string &name) {
  CUfunction function;
  must(cuModuleGetFunction(&function, module, name.c_str()), "cuModuleGetFunction");
  return function;
}

// Functions whose names end with how long they take, each in a module of its own.
class Kernels {
 public:
  CUfunction find(const std::string &duration) {
    CUfunction &function = functions_[duration];
    if (function == nullptr) {
      const std::string name = "kernel_" + duration;
      function = function_of(load(entry(name)), name);
    }
    return function;
  }

 private:
  std::map<std::string, CUfunction> functions_;
};

inline void launch(CUfunction function, CUstream stream, unsigned blocks = 1) {
  must(cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
}

}  // namespace bench
