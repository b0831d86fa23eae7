// Stream-ordered memory pools. A pool holds extents of whole blocks (what CUDA calls reserved memory) and hands out
// pieces of them (used memory); free extents beyond the release threshold go back at the next synchronisation.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

constexpr uint32_t kPoolMagic = 0x504f4f4c;

struct Pool {
  uint32_t magic = kPoolMagic;
  Device *device = nullptr;
  CUmemPoolProps properties{};
  bool is_default = false;
  bool imported = false;
  bool destroyed = false;  // lives on until its last allocation is freed
  uint64_t release_threshold = 0;
  int reuse[3] = {1, 1, 1};  // event dependencies, opportunistic, internal dependencies
  std::set<Area *> extents;
  Area *last_extent = nullptr;
  uint64_t used = 0, used_high = 0;
  uint64_t reserved = 0, reserved_high = 0;
  std::map<int, CUmemAccess_flags> access;  // by device ordinal
  uint64_t export_id = 0;                   // names the pool itself to other processes
};

void make_device_pools(Driver *driver, Device *device);
Pool *valid_pool(CUmemoryPool handle);
// All of these expect the driver's lock.
CUresult allocate_from_pool(Driver *driver, Pool *pool, size_t bytes, CUdeviceptr *address);
// Frees a piece of a pool or a graph's allocation. `asynchronous` is false for cuMemFree, which implies a synchronisation.
CUresult free_to_pool(Driver *driver, CUdeviceptr address, bool asynchronous);
void trim_pool(Driver *driver, Pool *pool, uint64_t keep);
void destroy_pool(Driver *driver, Pool *pool);

// What every synchronisation does: pools give back what exceeds their release threshold. Takes the lock itself.
void settle_pools_slowly(Driver *driver);
inline void settle_pools(Driver *driver) {
  if (driver->pools_dirty.load(std::memory_order_relaxed)) settle_pools_slowly(driver);
}

}  // namespace simgpu
