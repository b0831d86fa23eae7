// Device memory in all its forms: linear, pooled, mapped, managed, shared between processes, behind arrays; pinned host
// memory too, and copies and fills. Here are the entry points for linear and pitched memory and for questions about it.
#include <algorithm>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/memory/copy.h"
#include "simgpu/cuda/memory/pool.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

constexpr size_t kPitchUnit = 512;

CUresult allocate(CUdeviceptr *dptr, size_t bytes, bool low) {
  SIMGPU_CONTEXT(driver, context);
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = forbid_unsafe_call(driver)) return result;
  DriverLock lock(driver->mutex);
  return allocate_linear(driver, context, bytes, low, dptr);
}

CUresult free_memory(CUdeviceptr dptr) {
  SIMGPU_CONTEXT(driver, context);
  if (dptr == 0) return CUDA_SUCCESS;
  if (CUresult result = forbid_unsafe_call(driver)) return result;
  // Freeing waits for the context's work, as pending work may still use the memory.
  drain_context(driver, context);
  DriverLock lock(driver->mutex);
  return free_address(driver, dptr);
}

CUresult allocate_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element, bool low) {
  if (dptr == nullptr || pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  size_t row = round_up(width, kPitchUnit), bytes;
  if (row < width || __builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = allocate(dptr, bytes, low);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) { return allocate(dptr, bytesize, false); }

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize) {
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr address = 0;
  CUresult result = allocate(&address, bytesize, true);
  if (result == CUDA_SUCCESS) *dptr = static_cast<CUdeviceptr_v1>(address);
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) { return free_memory(dptr); }
CUresult cuMemFree(CUdeviceptr_v1 dptr) { return free_memory(dptr); }

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned int element) {
  return allocate_pitch(dptr, pitch, width, height, element, false);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pitch, unsigned int width, unsigned int height,
                         unsigned int element) {
  if (dptr == nullptr || pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr address = 0;
  size_t row = 0;
  CUresult result = allocate_pitch(&address, &row, width, height, element, true);
  if (result != CUDA_SUCCESS) return result;
  *dptr = static_cast<CUdeviceptr_v1>(address);
  *pitch = static_cast<unsigned>(row);
  return CUDA_SUCCESS;
}

// Drivers fill in what is asked for: programs pass a null pointer for the figure that they do not need.
CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  SIMGPU_CONTEXT(driver, context);
  if (free != nullptr) *free = context->device->blocks.free_bytes(*driver->link.node());
  if (total != nullptr) *total = context->device->blocks.total_bytes();
  return CUDA_SUCCESS;
}

// 32-bit sizes: what does not fit is reported as the most that does.
CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
  size_t free_bytes = 0, total_bytes = 0;
  CUresult result = cuMemGetInfo_v2(&free_bytes, &total_bytes);
  if (result != CUDA_SUCCESS) return result;
  if (free != nullptr) *free = static_cast<unsigned>(std::min<size_t>(free_bytes, UINT32_MAX));
  if (total != nullptr) *total = static_cast<unsigned>(std::min<size_t>(total_bytes, UINT32_MAX));
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  DriverLock lock(driver->mutex);
  Allocation allocation;
  if (!driver->addresses.find_allocation(dptr, &allocation)) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = allocation.base;
  if (size != nullptr) *size = allocation.bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 dptr) {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUresult result = cuMemGetAddressRange_v2(&address, &bytes, dptr);
  if (result != CUDA_SUCCESS) return result;
  if (base != nullptr) *base = static_cast<CUdeviceptr_v1>(address);
  if (size != nullptr) *size = static_cast<unsigned>(bytes);
  return CUDA_SUCCESS;
}

}  // extern "C"
