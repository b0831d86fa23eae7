// Entry points of stream-ordered memory.
#include <cstring>

#include "simgpu/cuda/graph/capture.h"
#include "simgpu/cuda/memory/pool.h"
#include "simgpu/cuda/memory/share.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

// The 64 bytes that travel between processes for one allocation of a pool.
struct PointerData {
  uint64_t share_id;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(PointerData) <= sizeof(CUmemPoolPtrExportData));

CUresult allocate_async(CUdeviceptr *out, size_t bytes, Pool *pool, CUstream handle, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (pool == nullptr) pool = stream->context->device->current_pool;
  if (stream->capture != nullptr) {
    auto node = std::make_unique<GraphNode>();
    node->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    node->alloc.poolProps = pool->properties;
    node->alloc.bytesize = bytes;
    GraphNode *added;
    CUresult result = capture_node(driver, stream, std::move(node), &added);
    if (result == CUDA_SUCCESS) *out = added->alloc.dptr;
    return result;
  }
  if (pool->device->broken()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  DriverLock lock(driver->mutex);
  return allocate_from_pool(driver, pool, bytes, out);
}

CUresult free_async(CUdeviceptr address, CUstream handle, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (stream->capture != nullptr) {
    auto node = std::make_unique<GraphNode>();
    node->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    node->free_address = address;
    return capture_node(driver, stream, std::move(node));
  }
  // The default stream may have nothing to do itself and yet have to wait for the others.
  order_with_default_stream(stream);
  const bool idle = is_idle(stream);
  {
    DriverLock lock(driver->mutex);
    Area *area = driver->addresses.find(address);
    if (area == nullptr) return CUDA_ERROR_INVALID_VALUE;
    bool poolish = area->kind == AreaKind::kExtent || area->kind == AreaKind::kGraph;
    // Memory of the ordinary calls may be freed in stream order as well.
    bool linear = area->kind == AreaKind::kLinear || area->kind == AreaKind::kSlab;
    if (area->kind == AreaKind::kImported && area->pool != nullptr) return close_imported_area(driver, area);
    if (!poolish && !linear) return CUDA_ERROR_INVALID_VALUE;
    if (idle) return poolish ? free_to_pool(driver, address, true) : free_address(driver, address);
  }
  submit(stream, [driver, address] {
    DriverLock lock(driver->mutex);
    if (free_to_pool(driver, address, true) != CUDA_SUCCESS) free_address(driver, address);
  });
  return CUDA_SUCCESS;
}

CUresult default_pool(CUmemoryPool *out, CUdevice ordinal, bool current, bool managed = false) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  *out = reinterpret_cast<CUmemoryPool>(managed   ? device->managed_pool
                                        : current ? device->current_pool
                                                  : device->default_pool);
  return CUDA_SUCCESS;
}

bool has_pools(const CUmemLocation *location, CUmemAllocationType type) {
  return location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
         (type == CU_MEM_ALLOCATION_TYPE_PINNED || type == CU_MEM_ALLOCATION_TYPE_MANAGED);
}

}  // namespace

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream s) { return allocate_async(p, n, nullptr, s, false); }
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *p, size_t n, CUstream s) { return allocate_async(p, n, nullptr, s, true); }
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s) {
  return valid_pool(pool) != nullptr ? allocate_async(p, n, valid_pool(pool), s, false) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s) {
  return valid_pool(pool) != nullptr ? allocate_async(p, n, valid_pool(pool), s, true) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) { return free_async(p, s, false); }
CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s) { return free_async(p, s, true); }

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev) { return default_pool(pool, dev, false); }
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) { return default_pool(pool, dev, true); }
CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Pool *pool = valid_pool(handle);
  if (pool == nullptr || pool->device != device || pool->imported || pool == device->managed_pool)
    return CUDA_ERROR_INVALID_VALUE;
  device->current_pool = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  if (!has_pools(location, type)) return CUDA_ERROR_INVALID_VALUE;
  return default_pool(pool, location->id, false, type == CU_MEM_ALLOCATION_TYPE_MANAGED);
}
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  if (!has_pools(location, type)) return CUDA_ERROR_INVALID_VALUE;
  return default_pool(pool, location->id, true, type == CU_MEM_ALLOCATION_TYPE_MANAGED);
}
CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
  if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  return cuDeviceSetMemPool(location->id, pool);
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties) {
  SIMGPU_DRIVER(driver);
  if (out == nullptr || properties == nullptr || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  Device *device = driver->device(properties->location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock(driver->mutex);
  auto *pool = new Pool;
  pool->device = device;
  pool->properties = *properties;
  driver->pools.insert(pool);
  *out = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Pool *pool = valid_pool(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  if (pool->device->current_pool == pool) pool->device->current_pool = pool->device->default_pool;
  destroy_pool(driver, pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Pool *pool = valid_pool(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  trim_pool(driver, pool, keep);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Pool *pool = valid_pool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto *wide = static_cast<cuuint64_t *>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      *static_cast<int *>(value) = pool->reuse[0];
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      *static_cast<int *>(value) = pool->reuse[1];
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int *>(value) = pool->reuse[2];
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *wide = pool->release_threshold;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *wide = pool->reserved;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *wide = pool->reserved_high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *wide = pool->used;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *wide = pool->used_high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Pool *pool = valid_pool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cuuint64_t wide = 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      pool->reuse[0] = *static_cast<int *>(value);
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      pool->reuse[1] = *static_cast<int *>(value);
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->reuse[2] = *static_cast<int *>(value);
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold = *static_cast<cuuint64_t *>(value);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      memcpy(&wide, value, sizeof wide);
      if (wide != 0) return CUDA_ERROR_INVALID_VALUE;  // high-water marks can only be reset
      if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_high = pool->used;
      else
        pool->reserved_high = pool->reserved;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Pool *pool = valid_pool(handle);
  if (pool == nullptr || (count != 0 && map == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || driver->device(map[i].location.id) == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    // The device that holds the memory always sees it.
    if (map[i].location.id == pool->device->ordinal && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
      return CUDA_ERROR_INVALID_DEVICE;
    pool->access[map[i].location.id] = map[i].flags;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Pool *pool = valid_pool(handle);
  if (pool == nullptr || flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->id == pool->device->ordinal)
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  else
    *flags = pool->access.count(location->id) != 0 ? pool->access[location->id] : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Pool *pool = valid_pool(handle);
  if (pool == nullptr || out == nullptr || flags != 0 || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (pool->properties.handleTypes & type) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (pool->export_id == 0) pool->export_id = share_blocks(driver, pool->device, {}, 0, 0);
  int fd = pool->export_id != 0 ? share_descriptor(driver, pool->export_id) : -1;
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int *>(out) = fd;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *os_handle, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  auto fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  ImportedShare import;
  if (CUresult result = import_share(driver, fd, &import)) return result;
  auto *pool = new Pool;
  pool->device = import.device;
  pool->imported = true;
  pool->export_id = import.id;
  driver->pools.insert(pool);
  *out = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Allocation allocation;
  if (out == nullptr || !driver->addresses.find_allocation(address, &allocation) ||
      allocation.area->kind != AreaKind::kExtent)
    return CUDA_ERROR_INVALID_VALUE;
  PointerData data{share_area(driver, allocation.area), address - allocation.area->base, allocation.bytes};
  if (data.share_id == 0) return CUDA_ERROR_OPERATING_SYSTEM;
  memset(out, 0, sizeof *out);
  memcpy(out, &data, sizeof data);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool handle, CUmemPoolPtrExportData *exported) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Pool *pool = valid_pool(handle);
  if (out == nullptr || exported == nullptr || pool == nullptr || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
  PointerData data;
  memcpy(&data, exported, sizeof data);
  Area *area;
  if (CUresult result = open_imported_area(driver, data.share_id, &area)) return result;
  area->pool = pool;
  *out = area->base + data.offset;
  return CUDA_SUCCESS;
}

}  // extern "C"
