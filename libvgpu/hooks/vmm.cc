// Virtual memory management: the physical memory is charged, addresses and mappings are not.
#include "runtime/charge.h"
#include "runtime/imports.h"
#include "runtime/physical.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

// Memory that is behind an array stays until it is taken away from there.
CUresult map_arrays(const CUarrayMapInfo *operations, unsigned count, CUresult result) {
  if (result != CUDA_SUCCESS || mode() != Mode::active) return result;
  for (unsigned i = 0; i < count; ++i) {
    if (operations[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) physical_shared(operations[i].memHandle.memHandle);
  }
  return result;
}

}  // namespace

extern "C" {

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
  const Mode now = mode();
  const auto call = [&](CUmemGenericAllocationHandle *made) {
    return REAL(cuMemCreate)(made, bytes, properties, flags);
  };
  if (now == Mode::closed) return kNotReady;
  const bool on_device = properties != nullptr && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (now == Mode::inert || !on_device) return call(handle);
  settle_untracked_when_due();
  const int dev = region_device(properties->location.id);
  if (handle == nullptr || bytes == 0 || (dev == kNotInJob && !exists(properties->location.id))) return call(handle);
  if (dev == kNotInJob) return charge(dev, bytes);
  const auto number = static_cast<unsigned>(dev);
  const std::uint64_t charged = whole_blocks(bytes, block_bytes(number, properties->location.id));
  if (const CUresult refused = charge(dev, charged); refused != CUDA_SUCCESS) return refused;
  CUmemGenericAllocationHandle made = 0;
  CUresult result = call(&made);
  if (result == CUDA_SUCCESS && !physical_made(made, number, units_for(charged))) {
    REAL(cuMemRelease)(made);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) {
    *handle = made;
  } else {
    rank().take_back(number, Kind::data, charged);
  }
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const bool active = mode() == Mode::active;
  const std::uint64_t piece = active ? physical_releasing(handle) : 0;
  const CUresult result = REAL(cuMemRelease)(handle);
  if (active) physical_released(handle, piece, result == CUDA_SUCCESS);
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  const CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
  if (result == CUDA_SUCCESS && mode() == Mode::active) {
    physical_retained(*handle, reinterpret_cast<std::uint64_t>(address));
  }
  return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  const CUresult result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && mode() == Mode::active) physical_mapped(handle, address, bytes);
  return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const CUresult result = REAL(cuMemUnmap)(address, bytes);
  if (result == CUDA_SUCCESS && mode() == Mode::active) physical_unmapped(address, bytes);
  return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *operations, unsigned int count, CUstream stream) {
  return map_arrays(operations, count, REAL(cuMemMapArrayAsync)(operations, count, stream));
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *operations, unsigned int count, CUstream stream) {
  return map_arrays(operations, count, REAL(cuMemMapArrayAsync_ptsz)(operations, count, stream));
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  const CUresult result = REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
  if (result == CUDA_SUCCESS && mode() == Mode::active) physical_exported(handle);
  return result;
}

// On which device it is, only the driver can say; probably where the thread is.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type) {
  const auto call = [&] { return REAL(cuMemImportFromShareableHandle)(handle, shareable, type); };
  Place place;
  if (mode() != Mode::active || handle == nullptr) return call();
  Import import(current_place(&place) ? place.dev : kNotInJob);
  const CUresult result = call();
  CUmemAllocationProp properties = {};
  if (result != CUDA_SUCCESS || REAL(cuMemGetAllocationPropertiesFromHandle)(&properties, *handle) != CUDA_SUCCESS ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return result;
  }
  const int dev = region_device(properties.location.id);
  const Imported imported = dev != kNotInJob ? physical_imported(*handle) : Imported{};
  if (imported.key != 0) import.finish(static_cast<unsigned>(dev), imported.key, 0);
  return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                            CUmemGenericAllocationHandle memory, size_t offset, size_t bytes,
                            unsigned long long flags) {
  const CUresult result = REAL(cuMulticastBindMem)(multicast, multicast_offset, memory, offset, bytes, flags);
  if (result == CUDA_SUCCESS && mode() == Mode::active) physical_shared(memory);
  return result;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset, CUdeviceptr memory,
                             size_t bytes, unsigned long long flags) {
  const CUresult result = REAL(cuMulticastBindAddr)(multicast, multicast_offset, memory, bytes, flags);
  if (result == CUDA_SUCCESS && mode() == Mode::active) physical_shared_at(memory);
  return result;
}

}  // extern "C"
