// Modules: what the simulator knows of a loaded image is the names of its kernels and the names, sizes and initial bytes
// of its variables. Kernels are never executed.
#pragma once

#include <memory>
#include <string>

#include "simgpu/cuda/core.h"

namespace simgpu {

struct ImageVariable {
  std::string name;
  uint64_t bytes = 0;
  std::string initial;  // empty: zeros
  bool managed = false;
  bool constant = false;
};

// Parameters of one kernel, as far as the image tells.
struct ImageKernel {
  std::string name;
  std::vector<std::pair<uint32_t, uint32_t>> parameters;  // offset, size
  uint32_t shared_bytes = 0;
  uint32_t local_bytes = 0;  // for each thread
};

struct Image {
  std::vector<ImageKernel> kernels;
  std::vector<ImageVariable> variables;
  uint64_t code_bytes = 0;
};

// Reads PTX text, a cubin, a fat binary or the result of a simulated link. False: not an image of these kinds.
bool read_image(const void *data, Image *image);
bool read_ptx(const char *text, size_t length, Image *image);
bool read_cubin(const char *data, size_t length, Image *image);
bool read_fatbinary(const char *data, Image *image);
size_t elf_length(const char *data);

constexpr uint32_t kModuleMagic = 0x4d4f4431;
constexpr uint32_t kFunctionMagic = 0x464e4331;

struct Function {
  uint32_t magic = kFunctionMagic;
  Module *module = nullptr;
  Context *context = nullptr;
  ImageKernel kernel;
  KernelTime time{};
  bool loaded = false;
  int max_dynamic_shared = 48 << 10;
  int carveout = -1;
  int block_x = 1, block_y = 1, block_z = 1;  // for the launch calls of before 4.0
};

struct Module {
  uint32_t magic = kModuleMagic;
  Context *context = nullptr;
  BlockList overhead;
  Area *variables = nullptr;
  struct Variable {
    CUdeviceptr address = 0;
    ImageVariable image;
    Area *managed = nullptr;
  };
  std::map<std::string, Variable> globals;
  std::map<std::string, Function *> functions;
};

// Both expect the driver's lock.
CUresult load_module(Driver *driver, Context *context, const Image &image, Module **module);
void unload_module(Driver *driver, Module *module);

}  // namespace simgpu
