// Pinned host memory: allocated or registered, known to the driver by address, never charged to a device.
#include <sys/mman.h>

#include "simgpu/cuda/context/context.h"
#include "simgpu/cuda/core.h"

namespace simgpu {

std::map<uintptr_t, HostRange>::iterator release_host_range(Driver *driver,
                                                            std::map<uintptr_t, HostRange>::iterator range) {
  if (!range->second.registered) munmap(reinterpret_cast<void *>(range->first), round_up(range->second.bytes, 4096));
  return driver->host_ranges.erase(range);
}

namespace {

CUresult allocate_host(void **out, size_t bytes, unsigned flags) {
  SIMGPU_CONTEXT(driver, context);
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void *map =
      mmap(nullptr, round_up(bytes, 4096), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  DriverLock lock(driver->mutex);
  driver->host_ranges[reinterpret_cast<uintptr_t>(map)] = {bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP, false, context};
  *out = map;
  return CUDA_SUCCESS;
}

CUresult register_host(void *pointer, size_t bytes, unsigned flags) {
  SIMGPU_CONTEXT(driver, context);
  auto address = reinterpret_cast<uintptr_t>(pointer);
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  auto after = driver->host_ranges.lower_bound(address);
  if (after != driver->host_ranges.end() && after->first < address + bytes)
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (after != driver->host_ranges.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second.bytes > address) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  driver->host_ranges[address] = {bytes, flags, true, context};
  return CUDA_SUCCESS;
}

// The range that contains the address, or null.
HostRange *containing(Driver *driver, const void *pointer) {
  auto address = reinterpret_cast<uintptr_t>(pointer);
  auto it = driver->host_ranges.upper_bound(address);
  if (it == driver->host_ranges.begin()) return nullptr;
  --it;
  return address < it->first + it->second.bytes ? &it->second : nullptr;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) { return allocate_host(pp, bytesize, 0); }
CUresult cuMemAllocHost(void **pp, unsigned int bytesize) { return allocate_host(pp, bytesize, 0); }
CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags) {
  if ((flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return allocate_host(pp, bytesize, flags);
}

CUresult cuMemFreeHost(void *p) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  DriverLock lock(driver->mutex);
  auto it = driver->host_ranges.find(reinterpret_cast<uintptr_t>(p));
  if (it == driver->host_ranges.end() || it->second.registered) return CUDA_ERROR_INVALID_VALUE;
  release_host_range(driver, it);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int flags) {
  return register_host(p, bytesize, flags);
}
CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int flags) { return register_host(p, bytesize, flags); }

CUresult cuMemHostUnregister(void *p) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  DriverLock lock(driver->mutex);
  auto it = driver->host_ranges.find(reinterpret_cast<uintptr_t>(p));
  if (it == driver->host_ranges.end() || !it->second.registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  driver->host_ranges.erase(it);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int flags) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  if (pdptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  if (containing(driver, p) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int flags) {
  CUdeviceptr address = 0;
  CUresult result = cuMemHostGetDevicePointer_v2(&address, p, flags);
  if (result != CUDA_SUCCESS) return result;
  if (pdptr == nullptr || address >> 32 != 0) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = static_cast<CUdeviceptr_v1>(address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  DriverLock lock(driver->mutex);
  HostRange *range = containing(driver, p);
  if (flags == nullptr || range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags;
  return CUDA_SUCCESS;
}

}  // extern "C"
