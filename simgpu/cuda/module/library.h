// Libraries (CUDA 12): an image that is loaded into a context when something in it is first used there. A kernel handle may
// stand wherever a function handle does.
#pragma once

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/module/module.h"

namespace simgpu {

constexpr uint32_t kLibraryMagic = 0x4c494231;
constexpr uint32_t kKernelMagic = 0x4b524e31;

struct Library;

struct Kernel {
  uint32_t magic = kKernelMagic;
  Library *library = nullptr;
  ImageKernel image;
};

struct Library {
  uint32_t magic = kLibraryMagic;
  Image image;
  std::map<std::string, Kernel *> kernels;
  std::map<uint64_t, Module *> loaded;  // by context id
};

// Expects the driver's lock.
CUresult library_module(Driver *driver, Context *context, Library *library, Module **module);
Function *kernel_function(Driver *driver, Context *context, Kernel *kernel);

inline Function *resolve_function(Driver *driver, Context *context, CUfunction handle) {
  auto *function = reinterpret_cast<Function *>(handle);
  if (function == nullptr) return nullptr;
  if (__builtin_expect(function->magic == kFunctionMagic, 1)) return function;
  if (function->magic == kKernelMagic) return kernel_function(driver, context, reinterpret_cast<Kernel *>(handle));
  return nullptr;
}

}  // namespace simgpu
