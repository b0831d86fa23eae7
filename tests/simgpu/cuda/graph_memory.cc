#include "cuda/graph_memory.h"

#include <algorithm>

namespace simgpu {

Area *reserve_graph_area(Driver *driver, Device *device, size_t bytes) {
  auto *area = new Area;
  area->kind = AreaKind::kGraph;
  area->device = device;
  area->bytes = round_up(bytes, kBlockBytes);
  area->user_bytes = bytes;
  area->base = driver->addresses.reserve(area->bytes);
  if (area->base == 0) {
    delete area;
    return nullptr;
  }
  driver->addresses.enter(area);
  return area;
}

bool back_graph_area(Driver *driver, Area *area) {
  if (!area->blocks.empty()) return true;
  GraphMemory &memory = area->device->graph_memory;
  size_t wanted = area->bytes / kBlockBytes;
  size_t reused = std::min(wanted, memory.cached.size());
  if (!take_blocks(driver, area->device, (wanted - reused) * kBlockBytes, BlockUse::kGraph, &area->blocks))
    return false;
  area->blocks.insert(area->blocks.end(), memory.cached.end() - static_cast<ptrdiff_t>(reused), memory.cached.end());
  memory.cached.resize(memory.cached.size() - reused);
  memory.used_bytes += area->bytes;
  memory.used_high = std::max(memory.used_high, memory.used_bytes);
  memory.reserved_high = std::max(memory.reserved_high, memory.reserved_bytes());
  return true;
}

CUresult release_graph_area(Driver *, Area *area) {
  if (area->blocks.empty()) return CUDA_ERROR_INVALID_VALUE;
  GraphMemory &memory = area->device->graph_memory;
  if (area->touched)
    for (uint32_t block : area->blocks) area->device->blocks.clear(block);
  area->touched = false;
  memory.cached.insert(memory.cached.end(), area->blocks.begin(), area->blocks.end());
  memory.used_bytes -= area->bytes;
  area->blocks.clear();
  return CUDA_SUCCESS;
}

void delete_graph_area(Driver *driver, Area *area) {
  if (!area->blocks.empty()) release_graph_area(driver, area);
  driver->addresses.leave(area);
  driver->addresses.release(area->base, area->bytes);
  delete area;
}

void trim_graph_memory(Device *device) {
  device->blocks.give(device->graph_memory.cached, true);
  device->graph_memory.cached.clear();
}

}  // namespace simgpu
