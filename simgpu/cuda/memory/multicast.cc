// Multicast objects: an address range that stands for memory of several devices. They have no memory themselves; what is
// bound to one stays until it is unbound or the object goes.
#include "simgpu/cuda/memory/multicast.h"

#include <algorithm>

#include "simgpu/cuda/memory/vmm.h"

namespace simgpu {

void unbind_all(Driver *driver, Multicast &object) {
  while (!object.bindings.empty()) {
    PhysicalHandle *memory = object.bindings.back().memory;
    object.bindings.pop_back();
    memory->mappings--;
    settle_handle(driver, memory);
  }
}

namespace {

PhysicalHandle *valid_multicast(CUmemGenericAllocationHandle handle) {
  PhysicalHandle *physical = valid_handle(handle);
  return physical != nullptr && physical->multicast != nullptr ? physical : nullptr;
}

// Expects the lock.
CUresult bind(PhysicalHandle *object, size_t offset, PhysicalHandle *memory, size_t memory_offset, size_t bytes) {
  if (object == nullptr || memory == nullptr || memory->device == nullptr || bytes == 0 || bytes % kBlockBytes != 0 ||
      offset % kBlockBytes != 0 || memory_offset % kBlockBytes != 0 || bytes > object->bytes ||
      offset > object->bytes - bytes || bytes > memory->bytes || memory_offset > memory->bytes - bytes)
    return CUDA_ERROR_INVALID_VALUE;
  Multicast &multicast = *object->multicast;
  if (multicast.devices.size() < multicast.device_count) return CUDA_ERROR_ILLEGAL_STATE;
  if (multicast.devices.count(memory->device) == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const Multicast::Binding &other : multicast.bindings)
    if (other.memory->device == memory->device && offset < other.offset + other.bytes && other.offset < offset + bytes)
      return CUDA_ERROR_INVALID_VALUE;
  multicast.bindings.push_back({memory, offset, bytes});
  memory->mappings++;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *properties,
                                   CUmulticastGranularity_flags option) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (granularity == nullptr || properties == nullptr || option > CU_MULTICAST_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  *granularity = kBlockBytes;
  return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *properties) {
  SIMGPU_DRIVER(driver);
  if (out == nullptr || properties == nullptr || properties->size == 0 || properties->size % kBlockBytes != 0 ||
      properties->numDevices == 0 || properties->numDevices > driver->devices.size() || properties->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto *object = new PhysicalHandle;
  object->bytes = properties->size;
  object->multicast = std::make_unique<Multicast>();
  object->multicast->device_count = properties->numDevices;
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(object);
  return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  PhysicalHandle *object = valid_multicast(handle);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (object == nullptr || object->multicast->devices.size() == object->multicast->device_count ||
      !object->multicast->devices.insert(device).second)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
                            size_t memory_offset, size_t bytes, unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return bind(valid_multicast(handle), offset, valid_handle(memory), memory_offset, bytes);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t bytes,
                             unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Area *area = driver->addresses.find(address);
  if (flags != 0 || area == nullptr || area->kind != AreaKind::kReserved) return CUDA_ERROR_INVALID_VALUE;
  const Area::Page &page = area->pages[(address - area->base) / kBlockBytes];
  return bind(valid_multicast(handle), offset, page.handle, page.index * kBlockBytes, bytes);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice ordinal, size_t offset, size_t bytes) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  PhysicalHandle *object = valid_multicast(handle);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto &bindings = object->multicast->bindings;
  auto found = std::find_if(bindings.begin(), bindings.end(), [&](const Multicast::Binding &binding) {
    return binding.memory->device == device && binding.offset == offset && binding.bytes == bytes;
  });
  if (found == bindings.end()) return CUDA_ERROR_INVALID_VALUE;
  PhysicalHandle *memory = found->memory;
  bindings.erase(found);
  memory->mappings--;
  settle_handle(driver, memory);
  return CUDA_SUCCESS;
}

}  // extern "C"
