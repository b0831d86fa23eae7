#include "simgpu/cuda/memory/share.h"

#include <cerrno>

namespace simgpu {

uint64_t share_blocks(Driver *driver, Device *device, const BlockList &blocks, uint64_t bytes, uint64_t extra) {
  Message message{};
  message.op = Op::kExport;
  message.device = device->state->index;
  message.bytes = bytes;
  message.extra = extra;
  BlockList copy = blocks;
  return driver->link.call(&message, &copy) == 0 ? message.id : 0;
}

uint64_t share_area(Driver *driver, Area *area) {
  if (area->share_id == 0)
    area->share_id = share_blocks(driver, area->device, area->blocks, area->user_bytes, area->base);
  return area->share_id;
}

void drop_share(Driver *driver, uint64_t id) {
  Message message{};
  message.op = Op::kDrop;
  message.id = id;
  driver->link.call(&message);
}

int share_descriptor(Driver *driver, uint64_t id) {
  Message message{};
  message.op = Op::kExportFd;
  message.id = id;
  int fd = -1;
  return driver->link.call(&message, nullptr, -1, &fd) == 0 ? fd : -1;
}

CUresult import_share(Driver *driver, int fd, ImportedShare *import) {
  Message message{};
  message.op = fd >= 0 ? Op::kImportFd : Op::kImport;
  message.id = import->id;
  int rc = driver->link.call(&message, &import->blocks, fd);
  if (rc != 0) return CUDA_ERROR_INVALID_VALUE;
  import->id = message.id;
  import->bytes = message.bytes;
  import->extra = message.extra;
  for (Device *device : driver->devices)
    if (device->state->index == message.device) import->device = device;
  if (import->device == nullptr) {
    // The exporter's device is not visible to this process.
    drop_share(driver, import->id);
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

CUresult open_imported_area(Driver *driver, uint64_t id, Area **out) {
  for (Area *area : driver->imports) {
    if (area->share_id != id) continue;
    area->imports++;
    *out = area;
    return CUDA_SUCCESS;
  }
  ImportedShare import;
  import.id = id;
  if (CUresult result = import_share(driver, -1, &import)) return result;
  auto *area = new Area;
  area->kind = AreaKind::kImported;
  area->device = import.device;
  area->bytes = import.blocks.size() * kBlockBytes;
  area->user_bytes = import.bytes;
  area->blocks = import.blocks;
  area->share_id = id;
  area->imports = 1;
  area->base = driver->addresses.reserve(area->bytes);
  if (area->base == 0) {
    drop_share(driver, id);
    delete area;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  driver->addresses.enter(area);
  driver->imports.insert(area);
  *out = area;
  return CUDA_SUCCESS;
}

CUresult close_imported_area(Driver *driver, Area *area) {
  if (--area->imports > 0) return CUDA_SUCCESS;
  free_area(driver, area);
  return CUDA_SUCCESS;
}

}  // namespace simgpu
