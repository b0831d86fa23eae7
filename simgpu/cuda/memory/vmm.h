// Virtual memory management: physical handles, address reservations and the mappings between them.
#pragma once

#include <memory>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/memory/multicast.h"

namespace simgpu {

constexpr uint32_t kHandleMagic = 0x564d4d48;

// Lives until no handle reference and no mapping is left; only then is the memory given back.
struct PhysicalHandle {
  uint32_t magic = kHandleMagic;
  Device *device = nullptr;  // null: host memory, or none
  BlockList blocks;
  char *host_bytes = nullptr;
  int host_fd = -1;
  uint64_t bytes = 0;
  int references = 1;
  int mappings = 0;
  bool touched = false;
  uint64_t share_id = 0;
  CUmemAllocationProp properties{};
  std::unique_ptr<Multicast> multicast;  // not null: an object without memory
};

PhysicalHandle *valid_handle(CUmemGenericAllocationHandle handle);
// Frees the memory when nothing refers to it any more. Expects the driver's lock.
void settle_handle(Driver *driver, PhysicalHandle *handle);
// Unmaps whatever lies in the pages [first, first + count) of a reservation.
void unmap_pages(Driver *driver, Area *area, size_t first, size_t count);

}  // namespace simgpu
