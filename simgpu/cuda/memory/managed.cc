#include "simgpu/cuda/memory/managed.h"

#include <sys/mman.h>

#include "simgpu/cuda/memory/copy.h"
#include "simgpu/cuda/stream/stream.h"

namespace simgpu {

CUresult allocate_managed(Driver *driver, Context *context, size_t bytes, unsigned flags, Area **out) {
  auto *area = new Area;
  area->kind = AreaKind::kManaged;
  area->bytes = round_up(bytes, kBlockBytes);
  area->user_bytes = bytes;
  area->device = context->device;
  area->attach_flags = flags;
  area->base = driver->addresses.reserve(area->bytes);
  void *map = MAP_FAILED;
  if (area->base != 0)
    map = mmap(reinterpret_cast<void *>(area->base), area->bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (map == MAP_FAILED) {
    delete area;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  link_area(context, area);
  driver->addresses.enter(area);
  driver->managed.insert(area);
  *out = area;
  return CUDA_SUCCESS;
}

namespace {

bool managed_range(Driver *driver, CUdeviceptr address, size_t count, Area **area) {
  *area = driver->addresses.find(address);
  return *area != nullptr && (*area)->kind == AreaKind::kManaged && count != 0 &&
         count <= (*area)->base + (*area)->user_bytes - address;
}

// Moves the whole area that the range lies in: the model of migration is one area, one place.
CUresult prefetch(CUdeviceptr address, size_t count, CUmemLocation location, CUstream handle, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  DriverLock lock(driver->mutex);
  Area *area;
  if (!managed_range(driver, address, count, &area)) return CUDA_ERROR_INVALID_VALUE;
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    Device *device = driver->device(location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    make_resident(driver, area, device);  // what does not fit stays on the host: prefetching is a hint
  } else if (area->resident_on != nullptr) {
    area->resident_on->blocks.give(area->blocks, false);
    area->blocks.clear();
    area->resident_on = nullptr;
  }
  area->last_prefetch = location;
  return CUDA_SUCCESS;
}

CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

CUresult advise(CUdeviceptr address, size_t count, CUmem_advise advice, CUmemLocation location) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  DriverLock lock(driver->mutex);
  Area *area;
  if (!managed_range(driver, address, count, &area)) return CUDA_ERROR_INVALID_VALUE;
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      area->read_mostly = true;
      break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      area->read_mostly = false;
      break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      area->preferred = location;
      break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      area->preferred = {};
      break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  SIMGPU_CONTEXT(driver, context);
  if (dptr == nullptr || bytesize == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  Area *area;
  CUresult result = allocate_managed(driver, context, bytesize, flags, &area);
  if (result == CUDA_SUCCESS) *dptr = area->base;
  return result;
}

CUresult cuMemPrefetchAsync(CUdeviceptr ptr, size_t count, CUdevice device, CUstream stream) {
  return prefetch(ptr, count, location_of(device), stream, false);
}
CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr ptr, size_t count, CUdevice device, CUstream stream) {
  return prefetch(ptr, count, location_of(device), stream, true);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr ptr, size_t count, CUmemLocation location, unsigned int, CUstream stream) {
  return prefetch(ptr, count, location, stream, false);
}
CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr ptr, size_t count, CUmemLocation location, unsigned int,
                                    CUstream stream) {
  return prefetch(ptr, count, location, stream, true);
}
CUresult cuMemAdvise(CUdeviceptr ptr, size_t count, CUmem_advise advice, CUdevice device) {
  return advise(ptr, count, advice, location_of(device));
}
CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t count, CUmem_advise advice, CUmemLocation location) {
  return advise(ptr, count, advice, location);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr dptr, size_t, unsigned int flags) {
  SIMGPU_CONTEXT(driver, context);
  if (find_stream(driver, context, stream, false) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  DriverLock lock(driver->mutex);
  Area *area = driver->addresses.find(dptr);
  if (area == nullptr || area->kind != AreaKind::kManaged || area->base != dptr) return CUDA_ERROR_INVALID_VALUE;
  area->attach_flags = flags;
  return CUDA_SUCCESS;
}
CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr dptr, size_t length, unsigned int flags) {
  return cuStreamAttachMemAsync(stream == nullptr ? CU_STREAM_PER_THREAD : stream, dptr, length, flags);
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr ptr,
                                size_t count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Area *area;
  if (data == nullptr || size < 4 || !managed_range(driver, ptr, count, &area)) return CUDA_ERROR_INVALID_VALUE;
  auto device_of = [](CUmemLocation location) {
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
    return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
  };
  int *value = static_cast<int *>(data);
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *value = area->read_mostly;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      *value = device_of(area->preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      *value = device_of(area->last_prefetch);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      for (size_t i = 0; i < size / 4; i++) value[i] = CU_DEVICE_INVALID;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes, size_t n,
                                 CUdeviceptr ptr, size_t count) {
  if (data == nullptr || sizes == nullptr || attributes == nullptr || n == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < n; i++)
    if (CUresult result = cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], ptr, count)) return result;
  return CUDA_SUCCESS;
}

}  // extern "C"
