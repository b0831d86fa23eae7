// CUDA arrays: rows of texels in device memory whose layout clients never see. Rows are padded to 512 bytes and slices
// follow one another; the size a client learns is only what cuMemGetInfo shows afterwards.
#pragma once

#include <array>

#include "simgpu/cuda/core.h"

namespace simgpu {

constexpr uint32_t kArrayMagic = 0x41525231;
constexpr uint32_t kMipmapMagic = 0x4d495031;

// Memory behind an array that has none of its own: by level, layer and offset. See array_map.cc.
using ArrayPlace = std::array<uint64_t, 5>;
using ArrayPieces = std::map<ArrayPlace, PhysicalHandle *>;

struct Array {
  uint32_t magic = kArrayMagic;
  Context *context = nullptr;
  Area *area = nullptr;  // null: sparse, or mapped later
  ArrayPieces pieces;
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
  ArrayPieces pieces;
  std::vector<Array *> levels;
};

Array *valid_array(CUarray handle);
// Expects the driver's lock.
void drop_pieces(Driver *driver, ArrayPieces &pieces);
void drop_pieces_of(Driver *driver, const Context *context);

}  // namespace simgpu
