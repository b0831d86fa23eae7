// cuPointerGetAttribute and its relatives.
#include <cstring>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/memory/vmm.h"

using namespace simgpu;

namespace {

struct Found {
  Area *area = nullptr;
  const HostRange *host = nullptr;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  Context *context = nullptr;
  Device *device = nullptr;
};

bool find(Driver *driver, CUdeviceptr address, Found *found) {
  Allocation allocation;
  if (driver->addresses.find_allocation(address, &allocation)) {
    found->area = allocation.area;
    found->base = allocation.base;
    found->bytes = allocation.bytes;
    found->context = allocation.area->context;
    found->device = allocation.area->device;
    if (allocation.area->kind == AreaKind::kReserved) {
      PhysicalHandle *handle = allocation.area->pages[(address - allocation.area->base) / kBlockBytes].handle;
      found->device = handle != nullptr ? handle->device : nullptr;
    }
    return true;
  }
  auto it = driver->host_ranges.upper_bound(address);
  if (it == driver->host_ranges.begin()) return false;
  --it;
  if (address >= it->first + it->second.bytes) return false;
  found->host = &it->second;
  found->base = it->first;
  found->bytes = it->second.bytes;
  found->context = it->second.context;
  found->device = it->second.context->device;
  return true;
}

CUresult get(Driver *driver, void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  Found found;
  if (!find(driver, address, &found)) return CUDA_ERROR_INVALID_VALUE;
  bool managed = found.area != nullptr && found.area->kind == AreaKind::kManaged;
  bool on_host = found.host != nullptr || managed;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext *>(data) = reinterpret_cast<CUcontext>(found.context);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned *>(data) = found.host != nullptr ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr *>(data) = address;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!on_host) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void **>(data) = reinterpret_cast<void *>(address);
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<int *>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long *>(data) = found.base;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<int *>(data) = managed;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int *>(data) = found.device != nullptr ? found.device->ordinal : CU_DEVICE_CPU;
      break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<int *>(data) =
          found.area != nullptr && (found.area->kind == AreaKind::kLinear || found.area->kind == AreaKind::kSlab);
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr *>(data) = found.base;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t *>(data) = found.bytes;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<int *>(data) = 1;
      break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool *>(data) =
          found.area != nullptr ? reinterpret_cast<CUmemoryPool>(found.area->pool) : nullptr;
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long *>(data) = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  SIMGPU_DRIVER(driver);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  return get(driver, data, attribute, ptr);
}

// Unlike the single call, a pointer the driver does not know is no error: every answer is then empty.
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr) {
  SIMGPU_DRIVER(driver);
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  for (unsigned i = 0; i < count; i++) {
    if (get(driver, data[i], attributes[i], ptr) == CUDA_SUCCESS) continue;
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(data[i]) = CU_DEVICE_INVALID;
        break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      case CU_POINTER_ATTRIBUTE_MAPPED:
        memset(data[i], 0, 4);
        break;
      default:
        memset(data[i], 0, 8);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Found found;
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !find(driver, ptr, &found))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // extern "C"
