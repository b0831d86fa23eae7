// CUDA arrays: rows of texels in device memory whose layout clients never see. Rows are padded to 512 bytes and slices
// follow one another; the size a client learns is only what cuMemGetInfo shows afterwards.
#pragma once

#include "cuda/core.h"

namespace simgpu {

constexpr uint32_t kArrayMagic = 0x41525231;
constexpr uint32_t kMipmapMagic = 0x4d495031;

struct Array {
  uint32_t magic = kArrayMagic;
  Context *context = nullptr;
  Area *area = nullptr;
  uint64_t offset = 0;  // levels of a mipmap share an area
  bool level = false;   // belongs to a mipmap: not to be destroyed by itself
  CUDA_ARRAY3D_DESCRIPTOR description{};
  size_t element_bytes = 0;
  size_t row_bytes = 0, pitch = 0, rows = 1, slices = 1;
  size_t bytes() const { return pitch * rows * slices; }
};

struct Mipmap {
  uint32_t magic = kMipmapMagic;
  Area *area = nullptr;
  std::vector<Array *> levels;
};

Array *valid_array(CUarray handle);

}  // namespace simgpu
