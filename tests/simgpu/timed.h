// Kernels that take time, and what the node says about it.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>
#include <sstream>

#include "support.h"

class TimedTest : public ContextTest {
 protected:
  // A kernel that takes `time`, such as "10ms".
  CUfunction kernel(const std::string &time) {
    CUfunction &function = kernels_[time];
    if (function != nullptr) return function;
    std::string name = "kernel_" + time;
    std::string ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry " + name + "()\n{\n  ret;\n}\n";
    CUmodule module;
    EXPECT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, ptx.c_str()));
    EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&function, module, name.c_str()));
    return function;
  }
  CUresult launch(const std::string &time, CUstream stream = nullptr, unsigned blocks = 1) {
    return cuLaunchKernel(kernel(time), blocks, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
  }
  void TearDown() override {
    kernels_.clear();
    ContextTest::TearDown();
  }

 private:
  std::map<std::string, CUfunction> kernels_;
};

// How long processes have had device 0, at one moment.
inline std::map<pid_t, uint64_t> busy_times() {
  std::istringstream lines(ctl("busy"));
  std::map<pid_t, uint64_t> out;
  uint64_t busy, at;
  int device;
  pid_t owner;
  while (lines >> device >> owner >> busy >> at)
    if (device == 0) out[owner] = busy;
  return out;
}

inline uint64_t busy_ns(pid_t pid = getpid()) { return busy_times()[pid]; }
