#include "simgpu/cuda/graph/graph_memory.h"

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

bool reserve_graph_memory(Driver *driver, const std::map<Device *, uint64_t> &bytes) {
  std::vector<std::pair<Device *, BlockList>> taken;
  for (auto [device, wanted] : bytes) {
    uint64_t cached = device->graph_memory.cached.size() * kBlockBytes;
    BlockList blocks;
    if (wanted > cached && !take_blocks(driver, device, wanted - cached, BlockUse::kGraph, &blocks)) {
      for (auto &[other, list] : taken) other->blocks.give(list, false);
      return false;
    }
    taken.emplace_back(device, std::move(blocks));
  }
  for (auto &[device, list] : taken) {
    GraphMemory &memory = device->graph_memory;
    memory.cached.insert(memory.cached.end(), list.begin(), list.end());
    memory.reserved_high = std::max(memory.reserved_high, memory.reserved_bytes());
  }
  return true;
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

void release_graph_area(Area *area) {
  GraphMemory &memory = area->device->graph_memory;
  if (area->touched)
    for (uint32_t block : area->blocks) area->device->blocks.clear(block);
  area->touched = false;
  memory.cached.insert(memory.cached.end(), area->blocks.begin(), area->blocks.end());
  memory.used_bytes -= area->bytes;
  area->blocks.clear();
}

namespace {

void delete_graph_area(Driver *driver, Area *area) {
  driver->addresses.leave(area);
  driver->addresses.release(area->base, area->bytes);
  delete area;
}

}  // namespace

CUresult free_graph_address(Driver *driver, Area *area, CUdeviceptr address) {
  if (address != area->base || area->blocks.empty()) return CUDA_ERROR_INVALID_VALUE;
  release_graph_area(area);
  if (area->detached) delete_graph_area(driver, area);
  return CUDA_SUCCESS;
}

void detach_graph_area(Driver *driver, Area *area) {
  area->detached = true;
  if (area->blocks.empty()) delete_graph_area(driver, area);
}

void trim_graph_memory(Device *device) {
  device->blocks.give(device->graph_memory.cached, true);
  device->graph_memory.cached.clear();
}

}  // namespace simgpu
