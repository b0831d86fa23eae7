#include "simgpu/cuda/memory/area.h"

#include <sys/mman.h>

namespace simgpu {
namespace {

void *reserve_quietly(void *where, size_t bytes, int flags) {
  void *map = mmap(where, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return map == MAP_FAILED ? nullptr : map;
}

Area **make_table(size_t window) {
  void *map = mmap(nullptr, window / kBlockBytes * sizeof(Area *), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? nullptr : static_cast<Area **>(map);
}

CUdeviceptr align_up(CUdeviceptr value, size_t alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace

// The window is reserved, never accessible: no host allocation can get an address that is also a device pointer. Large
// enough never to run out; where something else has taken the address space (ThreadSanitizer has), less must do.
bool AddressSpace::start() {
  constexpr size_t kMost = 8ull << 40, kLeast = 64ull << 30;
  void *map = nullptr;
  for (window_bytes_ = 2 * kMost; map == nullptr && window_bytes_ > kLeast;) {
    window_bytes_ /= 2;
    map = reserve_quietly(nullptr, window_bytes_ + kBlockBytes, 0);
  }
  if (map == nullptr) return false;
  base_ = align_up(reinterpret_cast<CUdeviceptr>(map), kBlockBytes);
  next_ = base_;
  table_ = make_table(window_bytes_);
  return table_ != nullptr;
}

bool AddressSpace::start_low() {
  if (low_bytes_ != 0) return true;
  for (size_t bytes = 1ull << 30; bytes >= 64ull << 20; bytes /= 2) {
    void *map = reserve_quietly(nullptr, bytes + kBlockBytes, MAP_32BIT);
    if (map == nullptr) continue;
    low_base_ = align_up(reinterpret_cast<CUdeviceptr>(map), kBlockBytes);
    low_next_ = low_base_;
    low_table_ = make_table(bytes);
    if (low_table_ == nullptr) return false;
    low_bytes_ = bytes;
    return true;
  }
  return false;
}

CUdeviceptr AddressSpace::reserve(size_t bytes, size_t alignment, bool low) {
  if (low && !start_low()) return 0;
  size_t pages = bytes / kBlockBytes;
  if (alignment <= kBlockBytes) {
    std::vector<CUdeviceptr> *bin = nullptr;
    if (!low && pages < 64) {
      bin = &small_free_[pages];
    } else {
      auto &bins = low ? low_free_ : free_;
      auto it = bins.find(bytes);
      if (it != bins.end()) bin = &it->second;
    }
    if (bin != nullptr && !bin->empty()) {
      CUdeviceptr address = bin->back();
      bin->pop_back();
      return address;
    }
  }
  CUdeviceptr &next = low ? low_next_ : next_;
  CUdeviceptr end = low ? low_base_ + low_bytes_ : base_ + window_bytes_;
  CUdeviceptr address = align_up(next, alignment);
  if (bytes > window_bytes_ || address + bytes > end) return 0;
  next = address + bytes;
  return address;
}

// Honours a wished address only when it lies in the part of the window that was never handed out, which is what a client
// that computes its own layout from an earlier reservation gets right.
bool AddressSpace::reserve_at(CUdeviceptr address, size_t bytes) {
  if (address % kBlockBytes != 0 || address < next_ || address + bytes > base_ + window_bytes_ ||
      address + bytes < address)
    return false;
  if (address > next_) release(next_, address - next_);
  next_ = address + bytes;
  return true;
}

void AddressSpace::release(CUdeviceptr address, size_t bytes) {
  size_t pages = bytes / kBlockBytes;
  if (address - low_base_ < low_bytes_)
    low_free_[bytes].push_back(address);
  else if (pages < 64)
    small_free_[pages].push_back(address);
  else
    free_[bytes].push_back(address);
}

Area **AddressSpace::entry(CUdeviceptr address) {
  if (address - low_base_ < low_bytes_) return &low_table_[(address - low_base_) / kBlockBytes];
  return &table_[(address - base_) / kBlockBytes];
}

void AddressSpace::enter(Area *area) {
  Area **first = entry(area->base);
  for (size_t i = 0; i < area->bytes / kBlockBytes; i++) first[i] = area;
}

void AddressSpace::leave(Area *area) {
  Area **first = entry(area->base);
  for (size_t i = 0; i < area->bytes / kBlockBytes; i++) first[i] = nullptr;
}

bool AddressSpace::find_allocation(CUdeviceptr address, Allocation *allocation) const {
  Area *area = find(address);
  if (area == nullptr) return false;
  uint64_t offset = address - area->base;
  allocation->area = area;
  if (area->kind == AreaKind::kSlab) {
    uint64_t piece = offset / area->piece_bytes;
    if (piece >= area->piece_size.size() || area->piece_size[piece] == 0) return false;
    allocation->base = area->base + piece * area->piece_bytes;
    allocation->bytes = area->piece_size[piece];
  } else if (area->kind == AreaKind::kExtent) {
    auto exact = area->extent_used.upper_bound(offset);
    if (exact == area->extent_used.begin()) return false;
    --exact;
    allocation->base = area->base + exact->first;
    allocation->bytes = exact->second;
  } else {
    allocation->base = area->base;
    allocation->bytes = area->user_bytes;
  }
  return address - allocation->base < allocation->bytes;
}

}  // namespace simgpu
