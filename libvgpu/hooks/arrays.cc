// Arrays and mipmapped arrays. What one takes, some drivers say afterwards; where they do not, it is charged for what it
// holds, row by row, in blocks of its own.
#include <algorithm>

#include "runtime/charge.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

constexpr std::uint64_t kRowAlignment = 512;

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ~std::uint64_t{0} : product;
}

// By number: older toolkits lack most of the names.
unsigned bytes_per_channel(unsigned format) {
  const bool block_compressed = format >= 0x91 && format <= 0x9e;
  const bool normalised_8_bit = (format >= 0xc0 && format <= 0xc2) || (format >= 0xc6 && format <= 0xc8);
  const bool video_8_bit =
      format == 0xb0 || format == 0xa2 || format == 0xa5 || format == 0xa8 || format == 0xb2 || format == 0xb4;
  const bool normalised_16_bit = (format >= 0xc3 && format <= 0xc5) || (format >= 0xc9 && format <= 0xcb);
  if (format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8) return 1;
  if (format == CU_AD_FORMAT_UNSIGNED_INT16 || format == CU_AD_FORMAT_SIGNED_INT16) return 2;
  if (format == CU_AD_FORMAT_HALF || normalised_16_bit) return 2;
  if (block_compressed || normalised_8_bit || video_8_bit) return 1;
  return 4;
}

template <typename Descriptor>
std::uint64_t layer_bytes(const Descriptor &shape, std::uint64_t width, std::uint64_t height, std::uint64_t depth) {
  const std::uint64_t element = bytes_per_channel(shape.Format) * std::max(shape.NumChannels, 1u);
  const std::uint64_t row = times(width, element);
  const std::uint64_t pitch = row > ~std::uint64_t{0} - kRowAlignment
                                  ? ~std::uint64_t{0}
                                  : (row + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  return times(times(pitch, std::max<std::uint64_t>(height, 1)), std::max<std::uint64_t>(depth, 1));
}

// Memory for these is bound later, and charged where it is made.
bool has_no_memory(unsigned flags) { return (flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0; }

template <typename Descriptor>
std::uint64_t bytes_2d(const Descriptor *shape) {
  return shape != nullptr ? layer_bytes(*shape, shape->Width, shape->Height, 1) : 0;
}

template <typename Descriptor>
std::uint64_t bytes_3d(const Descriptor *shape) {
  if (shape == nullptr || has_no_memory(shape->Flags)) return 0;
  return layer_bytes(*shape, shape->Width, shape->Height, shape->Depth);
}

std::uint64_t bytes_of_levels(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
  if (shape == nullptr || has_no_memory(shape->Flags)) return 0;
  const bool layered = (shape->Flags & CUDA_ARRAY3D_LAYERED) != 0;
  std::uint64_t width = shape->Width, height = shape->Height, depth = shape->Depth, total = 0;
  for (unsigned level = 0; level < levels; ++level) {
    if (__builtin_add_overflow(total, layer_bytes(*shape, width, height, depth), &total)) return ~std::uint64_t{0};
    if (width <= 1 && height <= 1 && (layered || depth <= 1)) break;  // nothing left to halve
    width = std::max<std::uint64_t>(width / 2, 1);
    height = std::min(height, std::max<std::uint64_t>(height / 2, 1));
    if (!layered) depth = std::min(depth, std::max<std::uint64_t>(depth / 2, 1));
  }
  return total;
}

// 0: this driver does not say, or not of arrays that have their memory already.
std::uint64_t taken_by(CUarray array, CUdevice ordinal) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS taken = {};
  return REAL(cuArrayGetMemoryRequirements)(&taken, array, ordinal) == CUDA_SUCCESS ? taken.size : 0;
}
std::uint64_t taken_by(CUmipmappedArray array, CUdevice ordinal) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS taken = {};
  return REAL(cuMipmappedArrayGetMemoryRequirements)(&taken, array, ordinal) == CUDA_SUCCESS ? taken.size : 0;
}

// The caller sees what the driver wrote only when all is well. What is wrong whatever the limit is, is the driver's to say.
template <typename Array, typename Call, typename Destroy>
CUresult allocate_array(Handle handle, Array *array, std::uint64_t bytes, Call call, Destroy destroy) {
  const Mode now = mode();
  if (now == Mode::closed) return kNotReady;
  if (now == Mode::inert || array == nullptr) return call(array);
  Array made = nullptr;
  const auto make = [&] { return call(&made); };
  const auto undo = [&] { destroy(made); };
  const CUresult result = allocate_here(make, undo, [&](const Place &place) {
    std::uint64_t taken = 0;
    const auto actual = [&] {
      if (bytes != 0) taken = taken_by(made, place.ordinal);
      return taken != 0 ? taken : bytes;
    };
    const auto add = [&](Allocation allocation, Allocation *displaced) {
      allocation.elastic = taken == 0;
      return add_allocation(allocation_key(handle, reinterpret_cast<std::uint64_t>(made)), allocation, displaced);
    };
    settle_untracked_when_due();
    return allocate_blocks(place, bytes, Size::elastic, make, actual, add, undo);
  });
  if (result == CUDA_SUCCESS) *array = made;
  return result;
}

void destroy_array(CUarray array) { REAL(cuArrayDestroy)(array); }
void destroy_mipmap(CUmipmappedArray array) { REAL(cuMipmappedArrayDestroy)(array); }

}  // namespace

extern "C" {

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
  return allocate_array(
      Handle::array, array, bytes_2d(shape), [&](CUarray *made) { return REAL(cuArrayCreate_v2)(made, shape); },
      destroy_array);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *shape) {
  return allocate_array(
      Handle::array, array, bytes_2d(shape), [&](CUarray *made) { return REAL(cuArrayCreate)(made, shape); },
      destroy_array);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
  return allocate_array(
      Handle::array, array, bytes_3d(shape), [&](CUarray *made) { return REAL(cuArray3DCreate_v2)(made, shape); },
      destroy_array);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape) {
  return allocate_array(
      Handle::array, array, bytes_3d(shape), [&](CUarray *made) { return REAL(cuArray3DCreate)(made, shape); },
      destroy_array);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
  return allocate_array(
      Handle::mipmap, array, bytes_of_levels(shape, levels),
      [&](CUmipmappedArray *made) { return REAL(cuMipmappedArrayCreate)(made, shape, levels); }, destroy_mipmap);
}

CUresult cuArrayDestroy(CUarray array) {
  return release(allocation_key(Handle::array, reinterpret_cast<std::uint64_t>(array)),
                 [&] { return REAL(cuArrayDestroy)(array); });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return release(allocation_key(Handle::mipmap, reinterpret_cast<std::uint64_t>(array)),
                 [&] { return REAL(cuMipmappedArrayDestroy)(array); });
}

}  // extern "C"
