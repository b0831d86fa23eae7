#include "simgpu/cuda/memory/pool.h"

#include <algorithm>

#include "simgpu/cuda/graph/graph_memory.h"
#include "simgpu/cuda/memory/share.h"

namespace simgpu {
namespace {

constexpr uint64_t kUnit = 512;

Area *grow(Driver *driver, Pool *pool, uint64_t bytes) {
  bytes = round_up(bytes, pool->device->facts().block_bytes);
  if (pool->properties.maxSize != 0 && pool->reserved + bytes > pool->properties.maxSize) return nullptr;
  auto *extent = new Area;
  extent->kind = AreaKind::kExtent;
  extent->device = pool->device;
  extent->pool = pool;
  extent->bytes = bytes;
  if (!take_blocks(driver, pool->device, bytes, BlockUse::kPool, &extent->blocks)) {
    delete extent;
    return nullptr;
  }
  extent->base = driver->addresses.reserve(bytes);
  if (extent->base == 0) {
    pool->device->blocks.give(extent->blocks, false);
    delete extent;
    return nullptr;
  }
  extent->user_bytes = bytes;
  extent->extent_free[0] = bytes;
  driver->addresses.enter(extent);
  pool->extents.insert(extent);
  pool->reserved += bytes;
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  return extent;
}

bool carve(Pool *pool, Area *extent, uint64_t length, uint64_t asked, CUdeviceptr *address) {
  for (auto it = extent->extent_free.begin(); it != extent->extent_free.end(); ++it) {
    if (it->second < length) continue;
    uint64_t offset = it->first;
    uint64_t rest = it->second - length;
    extent->extent_free.erase(it);
    if (rest != 0) extent->extent_free[offset + length] = rest;
    extent->extent_used[offset] = asked;
    pool->last_extent = extent;
    *address = extent->base + offset;
    return true;
  }
  return false;
}

}  // namespace

Pool *valid_pool(CUmemoryPool handle) {
  auto *pool = reinterpret_cast<Pool *>(handle);
  return pool != nullptr && pool->magic == kPoolMagic && !pool->destroyed ? pool : nullptr;
}

void make_device_pools(Driver *driver, Device *device) {
  auto make = [&](CUmemAllocationType type) {
    auto *pool = new Pool;
    pool->device = device;
    pool->is_default = true;
    pool->properties.allocType = type;
    pool->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    pool->properties.location.id = device->ordinal;
    driver->pools.insert(pool);
    return pool;
  };
  device->default_pool = device->current_pool = make(CU_MEM_ALLOCATION_TYPE_PINNED);
  device->managed_pool = make(CU_MEM_ALLOCATION_TYPE_MANAGED);
}

CUresult allocate_from_pool(Driver *driver, Pool *pool, size_t bytes, CUdeviceptr *address) {
  if (bytes == 0 || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > pool->device->blocks.total_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t length = round_up(bytes, kUnit);
  bool found = pool->last_extent != nullptr && carve(pool, pool->last_extent, length, bytes, address);
  for (auto it = pool->extents.begin(); !found && it != pool->extents.end(); ++it)
    found = carve(pool, *it, length, bytes, address);
  if (!found) {
    uint64_t exact = round_up(length, kBlockBytes);
    uint64_t generous = std::max(exact, round_up(pool->device->facts().pool_chunk_bytes, kBlockBytes));
    Area *extent = grow(driver, pool, generous);
    if (extent == nullptr && generous != exact) extent = grow(driver, pool, exact);
    if (extent == nullptr) {
      // What the pool keeps free in pieces that are too small is better given back than the request refused.
      trim_pool(driver, pool, 0);
      extent = grow(driver, pool, exact);
    }
    if (extent == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    carve(pool, extent, length, bytes, address);
  }
  pool->used += length;
  pool->used_high = std::max(pool->used_high, pool->used);
  return CUDA_SUCCESS;
}

CUresult free_to_pool(Driver *driver, CUdeviceptr address, bool asynchronous) {
  Area *extent = driver->addresses.find(address);
  if (extent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extent->kind == AreaKind::kGraph) return free_graph_address(driver, extent, address);
  if (extent->kind != AreaKind::kExtent) return CUDA_ERROR_INVALID_VALUE;
  auto used = extent->extent_used.find(address - extent->base);
  if (used == extent->extent_used.end()) return CUDA_ERROR_INVALID_VALUE;
  Pool *pool = extent->pool;
  uint64_t offset = used->first;
  uint64_t length = round_up(used->second, kUnit);
  extent->extent_used.erase(used);
  pool->used -= length;
  auto after = extent->extent_free.lower_bound(offset);
  if (after != extent->extent_free.end() && after->first == offset + length) {
    length += after->second;
    after = extent->extent_free.erase(after);
  }
  if (after != extent->extent_free.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += length;
      length = 0;
    }
  }
  if (length != 0) extent->extent_free[offset] = length;
  if (pool->destroyed && pool->used == 0) {
    destroy_pool(driver, pool);
  } else if (pool->reserved > pool->release_threshold) {
    if (asynchronous)
      driver->pools_dirty.store(true, std::memory_order_relaxed);
    else
      trim_pool(driver, pool, pool->release_threshold);
  }
  return CUDA_SUCCESS;
}

void trim_pool(Driver *driver, Pool *pool, uint64_t keep) {
  for (auto it = pool->extents.begin(); it != pool->extents.end() && pool->reserved > keep;) {
    Area *extent = *it;
    if (!extent->extent_used.empty()) {
      ++it;
      continue;
    }
    it = pool->extents.erase(it);
    if (pool->last_extent == extent) pool->last_extent = nullptr;
    pool->reserved -= extent->bytes;
    free_area(driver, extent);
  }
}

void destroy_pool(Driver *driver, Pool *pool) {
  pool->destroyed = true;
  trim_pool(driver, pool, 0);
  if (pool->used != 0) return;
  if (pool->export_id != 0) drop_share(driver, pool->export_id);
  driver->pools.erase(pool);
  pool->magic = 0;
  delete pool;
}

void settle_pools_slowly(Driver *driver) {
  DriverLock lock(driver->mutex);
  driver->pools_dirty.store(false, std::memory_order_relaxed);
  for (Pool *pool : driver->pools)
    if (pool->reserved > pool->release_threshold) trim_pool(driver, pool, pool->release_threshold);
}

}  // namespace simgpu
