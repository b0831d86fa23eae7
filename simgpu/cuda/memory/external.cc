#include "simgpu/cuda/memory/external.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simgpu/cuda/memory/share.h"

namespace simgpu {
namespace {

ExternalMemory *valid_external(CUexternalMemory handle) {
  auto *memory = reinterpret_cast<ExternalMemory *>(handle);
  return memory != nullptr && memory->magic == kExternalMagic && !memory->destroyed ? memory : nullptr;
}

void settle(Driver *driver, ExternalMemory *memory) {
  if (!memory->destroyed || !memory->buffers.empty()) return;
  free_area(driver, memory->area);
  memory->magic = 0;
  delete memory;
}

bool is_memfd(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

// There is no other interface on this node that could have taken the memory which a memfd stands for. So it is taken here,
// by the process that imports it, where it would be counted anyway: one process, two interfaces, one figure.
CUresult take_for_memfd(Driver *driver, Context *context, int fd, uint64_t bytes, Area *area) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) < bytes) return CUDA_ERROR_INVALID_VALUE;
  area->device = context->device;
  return take_blocks(driver, context->device, bytes, BlockUse::kExternal, &area->blocks) ? CUDA_SUCCESS
                                                                                         : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult take_share(Driver *driver, int fd, uint64_t bytes, Area *area) {
  ImportedShare import;
  if (CUresult result = import_share(driver, fd, &import)) return result;
  area->share_id = import.id;
  area->device = import.device;
  area->blocks = import.blocks;
  if (bytes <= import.blocks.size() * kBlockBytes) return CUDA_SUCCESS;
  drop_share(driver, import.id);
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult free_external_buffer(Driver *driver, Area *area, CUdeviceptr address) {
  auto buffer = area->external->buffers.find(address);
  if (buffer == area->external->buffers.end()) return CUDA_ERROR_INVALID_VALUE;
  area->external->buffers.erase(buffer);
  settle(driver, area->external);
  return CUDA_SUCCESS;
}

}  // namespace simgpu

using namespace simgpu;

extern "C" {

// The descriptor becomes the driver's when the call succeeds.
CUresult cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description) {
  SIMGPU_CONTEXT(driver, context);
  if (out == nullptr || description == nullptr || description->size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (description->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  int fd = description->handle.fd;
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  auto *area = new Area;
  area->kind = AreaKind::kExternal;
  CUresult result = is_memfd(fd) ? take_for_memfd(driver, context, fd, description->size, area)
                                 : take_share(driver, fd, description->size, area);
  if (result != CUDA_SUCCESS) {
    delete area;
    return result;
  }
  area->bytes = area->blocks.size() * kBlockBytes;
  area->user_bytes = description->size;
  area->base = driver->addresses.reserve(area->bytes);
  driver->addresses.enter(area);
  area->external = new ExternalMemory;
  area->external->area = area;
  close(fd);
  *out = reinterpret_cast<CUexternalMemory>(area->external);
  return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory handle,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *description) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  ExternalMemory *memory = valid_external(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || description == nullptr || description->flags != 0 || description->size == 0 ||
      description->size > memory->area->user_bytes ||
      description->offset > memory->area->user_bytes - description->size)
    return CUDA_ERROR_INVALID_VALUE;
  *out = memory->area->base + description->offset;
  memory->buffers.insert(*out);
  return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  ExternalMemory *memory = valid_external(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  memory->destroyed = true;
  settle(driver, memory);
  return CUDA_SUCCESS;
}

}  // extern "C"
