// Device addresses. An area is a run of 2 MiB pages of the driver's address window with what stands behind it. Device
// memory is not mapped where its address says: a host program that follows a device pointer faults, as on hardware.
#pragma once

#include <cuda.h>

#include <map>
#include <unordered_map>
#include <vector>

#include "simgpu/cuda/memory/blocks.h"

namespace simgpu {

struct Context;
struct Device;
struct Pool;
struct PhysicalHandle;
struct ExternalMemory;

enum class AreaKind : uint8_t { kLinear, kSlab, kExtent, kArray, kImported, kManaged, kReserved, kGraph, kExternal };

struct Area {
  AreaKind kind = AreaKind::kLinear;
  bool touched = false;
  CUdeviceptr base = 0;
  size_t bytes = 0;       // of address space, whole pages
  size_t user_bytes = 0;  // what was asked for, for areas that are one allocation
  Device *device = nullptr;
  Context *context = nullptr;  // null: belongs to the process (pools, imports)
  BlockList blocks;            // one per page
  uint64_t share_id = 0;       // not 0: the kernel process decides when the blocks are freed
  Area *previous = nullptr;    // list of the owning context
  Area *next = nullptr;

  // kSlab: equal pieces of one page. piece_size[i] is 0 for a free piece.
  uint32_t piece_bytes = 0;
  uint32_t size_class = 0;
  uint32_t pieces_used = 0;
  std::vector<uint32_t> piece_size;
  std::vector<uint16_t> free_pieces;
  int64_t partial_index = -1;  // place in the context's list of slabs with room

  // kExtent: pieces of a pool's memory. Offsets are multiples of 512.
  Pool *pool = nullptr;
  std::map<uint64_t, uint64_t> extent_free;  // offset -> length
  std::map<uint64_t, uint64_t> extent_used;  // offset -> asked length

  // kReserved: VMM address reservation; per page the handle behind it.
  struct Page {
    PhysicalHandle *handle = nullptr;
    uint32_t index = 0;    // page of the handle
    uint32_t mapping = 0;  // pages of the mapping that starts here; 0 inside one
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };
  std::vector<Page> pages;

  // kManaged: the bytes are host memory at the area's own address; blocks are what is resident on `resident_on`.
  Device *resident_on = nullptr;
  bool read_mostly = false;
  CUmemLocation preferred{};
  CUmemLocation last_prefetch{};
  unsigned attach_flags = 0;
  bool detached = false;  // kGraph: its graph is gone, and the address goes when it is freed
  int imports = 0;        // kImported: how often this process opened it
  ExternalMemory *external = nullptr;
};

// One allocation as a client knows it.
struct Allocation {
  Area *area = nullptr;
  CUdeviceptr base = 0;
  size_t bytes = 0;
};

class AddressSpace {
 public:
  bool start();
  // Address ranges in whole pages. `low` asks for an address below 4 GiB, for the 32-bit calls. 0 when there is none.
  CUdeviceptr reserve(size_t bytes, size_t alignment = kBlockBytes, bool low = false);
  bool reserve_at(CUdeviceptr address, size_t bytes);
  void release(CUdeviceptr address, size_t bytes);

  void enter(Area *area);
  void leave(Area *area);
  Area *find(CUdeviceptr address) const {
    if (address - base_ < window_bytes_) return table_[(address - base_) / kBlockBytes];
    if (address - low_base_ < low_bytes_) return low_table_[(address - low_base_) / kBlockBytes];
    return nullptr;
  }
  bool find_allocation(CUdeviceptr address, Allocation *allocation) const;

 private:
  bool start_low();
  Area **entry(CUdeviceptr address);

  CUdeviceptr base_ = 0;
  size_t window_bytes_ = 0;
  CUdeviceptr next_ = 0;
  Area **table_ = nullptr;
  CUdeviceptr low_base_ = 0;
  size_t low_bytes_ = 0;
  CUdeviceptr low_next_ = 0;
  Area **low_table_ = nullptr;
  std::vector<CUdeviceptr> small_free_[64];  // by number of pages: the common sizes come back in a few nanoseconds
  std::unordered_map<size_t, std::vector<CUdeviceptr>> free_;
  std::unordered_map<size_t, std::vector<CUdeviceptr>> low_free_;
};

}  // namespace simgpu
