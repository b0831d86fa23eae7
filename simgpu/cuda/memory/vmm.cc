#include "simgpu/cuda/memory/vmm.h"

#include <sys/mman.h>
#include <unistd.h>

#include "simgpu/cuda/memory/share.h"

namespace simgpu {

PhysicalHandle *valid_handle(CUmemGenericAllocationHandle handle) {
  auto *physical = reinterpret_cast<PhysicalHandle *>(handle);
  return physical != nullptr && physical->magic == kHandleMagic && physical->references > 0 ? physical : nullptr;
}

void settle_handle(Driver *driver, PhysicalHandle *handle) {
  if (handle->references > 0 || handle->mappings > 0) return;
  if (handle->multicast != nullptr) {
    unbind_all(driver, *handle->multicast);
  } else if (handle->device == nullptr) {
    munmap(handle->host_bytes, handle->bytes);
    close(handle->host_fd);
  } else if (handle->share_id != 0) {
    drop_share(driver, handle->share_id);
  } else {
    handle->device->blocks.give(handle->blocks, handle->touched);
  }
  handle->magic = 0;
  delete handle;
}

void unmap_pages(Driver *driver, Area *area, size_t first, size_t count) {
  for (size_t i = first; i < first + count; i++) {
    Area::Page page = area->pages[i];
    area->pages[i] = Area::Page{};
    if (page.mapping == 0) continue;
    if (page.handle->host_bytes != nullptr)
      mmap(reinterpret_cast<void *>(area->base + i * kBlockBytes), page.mapping * kBlockBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    page.handle->mappings--;
    settle_handle(driver, page.handle);
  }
}

}  // namespace simgpu

using namespace simgpu;

namespace {

uint64_t granularity_of(Driver *driver, const CUmemAllocationProp &property) {
  Device *device =
      property.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? driver->device(property.location.id) : nullptr;
  return device != nullptr ? device->facts().block_bytes : kBlockBytes;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
  SIMGPU_DRIVER(driver);
  if (granularity == nullptr || prop == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && driver->device(prop->location.id) == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  *granularity = granularity_of(driver, *prop);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  if (handle == nullptr || prop == nullptr || flags != 0 || size == 0 || size % granularity_of(driver, *prop) != 0 ||
      prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  auto *physical = new PhysicalHandle;
  physical->bytes = size;
  physical->properties = *prop;
  CUresult result = CUDA_SUCCESS;
  if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    DriverLock lock(driver->mutex);
    physical->device = driver->device(prop->location.id);
    if (!driver->link.alive())
      result = CUDA_ERROR_OPERATING_SYSTEM;
    else if (physical->device == nullptr)
      result = CUDA_ERROR_INVALID_DEVICE;
    else if (physical->device->broken())
      result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    else if (size > physical->device->blocks.total_bytes() ||
             !take_blocks(driver, physical->device, size, BlockUse::kVmm, &physical->blocks))
      result = CUDA_ERROR_OUT_OF_MEMORY;
  } else if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST ||
             prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
             prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    physical->host_fd = memfd_create("simgpu-host", MFD_CLOEXEC);
    void *map = MAP_FAILED;
    if (physical->host_fd >= 0 && ftruncate(physical->host_fd, static_cast<off_t>(size)) == 0)
      map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, physical->host_fd, 0);
    if (map == MAP_FAILED) {
      if (physical->host_fd >= 0) close(physical->host_fd);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
      physical->host_bytes = static_cast<char *>(map);
    }
  } else {
    result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result != CUDA_SUCCESS) {
    delete physical;
    return result;
  }
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  PhysicalHandle *physical = valid_handle(handle);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  physical->references--;
  settle_handle(driver, physical);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  if (ptr == nullptr || size == 0 || size % kBlockBytes != 0 || flags != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  auto *area = new Area;
  area->kind = AreaKind::kReserved;
  area->bytes = size;
  area->user_bytes = size;
  if (addr != 0 && driver->addresses.reserve_at(addr, size))
    area->base = addr;
  else
    area->base = driver->addresses.reserve(size, alignment > kBlockBytes ? alignment : kBlockBytes);
  if (area->base == 0) {
    delete area;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  area->pages.resize(size / kBlockBytes);
  driver->addresses.enter(area);
  *ptr = area->base;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Area *area = driver->addresses.find(ptr);
  if (area == nullptr || area->kind != AreaKind::kReserved || area->base != ptr || area->bytes != size)
    return CUDA_ERROR_INVALID_VALUE;
  for (const Area::Page &page : area->pages)
    if (page.handle != nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver->addresses.leave(area);
  driver->addresses.release(area->base, area->bytes);
  delete area;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  PhysicalHandle *physical = valid_handle(handle);
  Area *area = driver->addresses.find(ptr);
  if (physical == nullptr || area == nullptr || area->kind != AreaKind::kReserved || flags != 0 || offset != 0 ||
      size == 0 || size % kBlockBytes != 0 || ptr % kBlockBytes != 0 || size > physical->bytes ||
      ptr + size > area->base + area->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  size_t first = (ptr - area->base) / kBlockBytes;
  size_t count = size / kBlockBytes;
  for (size_t i = first; i < first + count; i++)
    if (area->pages[i].handle != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (physical->host_bytes != nullptr &&
      mmap(reinterpret_cast<void *>(ptr), size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->host_fd, 0) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < count; i++) {
    Area::Page &page = area->pages[first + i];
    page.handle = physical;
    page.index = static_cast<uint32_t>(i);
    page.mapping = i == 0 ? static_cast<uint32_t>(count) : 0;
    page.access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }
  physical->mappings++;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Area *area = driver->addresses.find(ptr);
  if (area == nullptr || area->kind != AreaKind::kReserved || ptr % kBlockBytes != 0 || size == 0 ||
      size % kBlockBytes != 0 || ptr + size > area->base + area->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  size_t first = (ptr - area->base) / kBlockBytes;
  size_t count = size / kBlockBytes;
  // Only whole mappings can go: the range must begin at one and end with one.
  for (size_t i = first; i < first + count;) {
    const Area::Page &page = area->pages[i];
    if (page.handle == nullptr || page.mapping == 0 || i + page.mapping > first + count)
      return CUDA_ERROR_INVALID_VALUE;
    i += page.mapping;
  }
  unmap_pages(driver, area, first, count);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Area *area = driver->addresses.find(ptr);
  if (area == nullptr || area->kind != AreaKind::kReserved || desc == nullptr || count == 0 || ptr % kBlockBytes != 0 ||
      size % kBlockBytes != 0 || size == 0 || ptr + size > area->base + area->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  size_t first = (ptr - area->base) / kBlockBytes;
  size_t pages = size / kBlockBytes;
  for (size_t i = first; i < first + pages; i++)
    if (area->pages[i].handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t d = 0; d < count; d++) {
    bool device = desc[d].location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (device && driver->device(desc[d].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    for (size_t i = first; i < first + pages; i++) {
      Area::Page &page = area->pages[i];
      if (!device && page.handle->device != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      page.access = desc[d].flags;
      if (!device && page.handle->host_bytes != nullptr)
        mprotect(reinterpret_cast<void *>(area->base + i * kBlockBytes), kBlockBytes,
                 desc[d].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                 : desc[d].flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                     : PROT_NONE);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Area *area = driver->addresses.find(ptr);
  if (area == nullptr || area->kind != AreaKind::kReserved) return CUDA_ERROR_INVALID_VALUE;
  const Area::Page &page = area->pages[(ptr - area->base) / kBlockBytes];
  if (page.handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = page.access;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  auto address = reinterpret_cast<CUdeviceptr>(addr);
  Area *area = driver->addresses.find(address);
  if (handle == nullptr || area == nullptr || area->kind != AreaKind::kReserved) return CUDA_ERROR_INVALID_VALUE;
  PhysicalHandle *physical = area->pages[(address - area->base) / kBlockBytes].handle;
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  physical->references++;
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  PhysicalHandle *physical = valid_handle(handle);
  if (prop == nullptr || physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = physical->properties;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  PhysicalHandle *physical = valid_handle(handle);
  if (out == nullptr || physical == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || physical->device == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if ((physical->properties.requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (physical->share_id == 0)
    physical->share_id = share_blocks(driver, physical->device, physical->blocks, physical->bytes, 0);
  int fd = physical->share_id != 0 ? share_descriptor(driver, physical->share_id) : -1;
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int *>(out) = fd;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  auto fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  ImportedShare import;
  if (CUresult result = import_share(driver, fd, &import)) return result;
  auto *physical = new PhysicalHandle;
  physical->device = import.device;
  physical->blocks = import.blocks;
  physical->bytes = import.bytes;
  physical->share_id = import.id;
  physical->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  physical->properties.location.id = import.device->ordinal;
  physical->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  return CUDA_SUCCESS;
}

}  // extern "C"
