// Linear memory: plain, pitched, managed.
#include "runtime/charge.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

// No pitch seen is larger than this rounding makes it. If one is, the difference is charged afterwards.
constexpr std::uint64_t kPitchAlignment = 512;

std::uint64_t at_most(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ~std::uint64_t{0} : product;
}

std::uint64_t pitched_bytes(std::uint64_t width, std::uint64_t height) {
  const std::uint64_t pitch = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  return pitch < width ? ~std::uint64_t{0} : at_most(pitch, height);
}

// The caller sees what the driver wrote only when all is well. What is wrong whatever the limit is, is the driver's to say.
template <typename Pointer, typename Call, typename Free>
CUresult allocate(Pointer *pointer, std::uint64_t bytes, Size size, Call call, Free free) {
  const Mode now = mode();
  if (now == Mode::closed) return kNotReady;
  if (now == Mode::inert || pointer == nullptr || bytes == 0) return call(pointer);
  Pointer made = 0;
  const CUresult result = allocate_linear(
      made, bytes, size, [&] { return call(&made); }, [&] { return bytes; }, [&] { free(made); });
  if (result == CUDA_SUCCESS) *pointer = made;
  return result;
}

template <typename Pointer, typename Number, typename Call, typename Free>
CUresult allocate_pitched(Pointer *pointer, Number *pitch, Number width, Number height, Call call, Free free) {
  const Mode now = mode();
  if (now == Mode::closed) return kNotReady;
  const std::uint64_t most = pitched_bytes(width, height);
  if (now == Mode::inert || pointer == nullptr || most == 0) return call(pointer, pitch);
  Pointer made = 0;
  Number made_pitch = 0;
  const auto actual = [&] { return made_pitch != 0 ? at_most(made_pitch, height) : most; };
  const CUresult result = allocate_linear(
      made, most, Size::fixed, [&] { return call(&made, pitch != nullptr ? &made_pitch : nullptr); }, actual,
      [&] { free(made); });
  if (result != CUDA_SUCCESS) return result;
  *pointer = made;
  if (pitch != nullptr) *pitch = made_pitch;
  return result;
}

void free_v1(CUdeviceptr_v1 pointer) { REAL(cuMemFree)(pointer); }
void free_v2(CUdeviceptr pointer) { REAL(cuMemFree_v2)(pointer); }

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
  return allocate(
      pointer, bytes, Size::fixed, [&](CUdeviceptr *made) { return REAL(cuMemAlloc_v2)(made, bytes); }, free_v2);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes) {
  return allocate(
      pointer, bytes, Size::fixed, [&](CUdeviceptr_v1 *made) { return REAL(cuMemAlloc)(made, bytes); }, free_v1);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element) {
  return allocate_pitched(
      pointer, pitch, width, height,
      [&](CUdeviceptr *made, size_t *made_pitch) {
        return REAL(cuMemAllocPitch_v2)(made, made_pitch, width, height, element);
      },
      free_v2);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                         unsigned int element) {
  return allocate_pitched(
      pointer, pitch, width, height,
      [&](CUdeviceptr_v1 *made, unsigned int *made_pitch) {
        return REAL(cuMemAllocPitch)(made, made_pitch, width, height, element);
      },
      free_v1);
}

// Managed memory is charged as if all of it were on the device, where it can be at any moment.
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
  return allocate(
      pointer, bytes, Size::managed, [&](CUdeviceptr *made) { return REAL(cuMemAllocManaged)(made, bytes, flags); },
      free_v2);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return release_pointer(pointer, [&] { return REAL(cuMemFree_v2)(pointer); });
}

CUresult cuMemFree(CUdeviceptr_v1 pointer) {
  return release_pointer(pointer, [&] { return REAL(cuMemFree)(pointer); });
}

}  // extern "C"
