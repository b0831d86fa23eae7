// Linear memory. Requests above 1 MiB take whole blocks; smaller ones share a block of their context with others
// of about the same size, and the block goes back with its last piece.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/memory/external.h"
#include "simgpu/cuda/memory/pool.h"
#include "simgpu/cuda/memory/share.h"
#include "simgpu/cuda/memory/vmm.h"

namespace simgpu {
namespace {

constexpr size_t kSlabLimit = 1 << 20;
constexpr size_t kPieceUnit = 512;

// Four classes per doubling: 512, 1024, 1536, 2048, 2560, 3072, ... so that at most a fifth of a piece is wasted.
unsigned size_class(size_t bytes, uint32_t *piece) {
  size_t units = (bytes + kPieceUnit - 1) / kPieceUnit;
  if (units <= 4) {
    *piece = static_cast<uint32_t>(units * kPieceUnit);
    return static_cast<unsigned>(units - 1);
  }
  unsigned doubling = static_cast<unsigned>(std::bit_width(units - 1)) - 1;
  size_t step = size_t{1} << (doubling - 2);
  size_t steps = (units - (size_t{1} << doubling) + step - 1) / step;
  *piece = static_cast<uint32_t>(((size_t{1} << doubling) + steps * step) * kPieceUnit);
  return 4 * (doubling - 1) + static_cast<unsigned>(steps) - 1;
}

void forget_partial(Context *context, Area *slab, bool low) {
  auto &list = context->partial_slabs[low][slab->size_class];
  Area *last = list.back();
  list[static_cast<size_t>(slab->partial_index)] = last;
  last->partial_index = slab->partial_index;
  list.pop_back();
  slab->partial_index = -1;
}

bool is_low(const Area *area) { return area->base >> 32 == 0; }

Area *make_slab(unsigned index, uint32_t piece_bytes, uint32_t pieces) {
  auto *slab = new Area;
  slab->kind = AreaKind::kSlab;
  slab->piece_bytes = piece_bytes;
  slab->size_class = index;
  slab->piece_size.assign(pieces, 0);
  slab->free_pieces.resize(pieces);
  for (uint32_t i = 0; i < pieces; i++) slab->free_pieces[i] = static_cast<uint16_t>(pieces - 1 - i);
  return slab;
}

// Gives an area its memory, its address and its place in the context; deletes it when that cannot be had.
CUresult back_area(Driver *driver, Context *context, size_t bytes, BlockUse use, bool low, Area *area) {
  Device *device = context->device;
  const uint64_t whole = round_up(bytes, device->facts().block_bytes);
  if (!take_blocks(driver, device, whole, use, &area->blocks)) {
    driver->delete_area(area);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  area->bytes = whole;
  area->base = driver->addresses.reserve(area->bytes, device->facts().block_bytes, low);
  if (area->base == 0) {
    device->blocks.give(area->blocks, false);
    driver->delete_area(area);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  area->user_bytes = bytes;
  area->device = device;
  link_area(context, area);
  driver->addresses.enter(area);
  return CUDA_SUCCESS;
}

CUresult allocate_piece(Driver *driver, Context *context, size_t bytes, bool low, CUdeviceptr *address) {
  uint32_t piece_bytes;
  unsigned index = size_class(bytes, &piece_bytes);
  auto &list = context->partial_slabs[low][index];
  if (list.empty()) {
    const uint64_t block_bytes = context->device->facts().block_bytes;
    const auto pieces = static_cast<uint32_t>(block_bytes / piece_bytes);
    Area *slab = driver->new_slab(index);
    // A spare one may be of a device with other blocks.
    if (slab != nullptr && slab->piece_size.size() != pieces) delete std::exchange(slab, nullptr);
    if (slab == nullptr) slab = make_slab(index, piece_bytes, pieces);
    CUresult result = back_area(driver, context, block_bytes, BlockUse::kLinear, low, slab);
    if (result != CUDA_SUCCESS) return result;
    slab->partial_index = 0;
    list.push_back(slab);
  }
  Area *slab = list.back();
  uint16_t piece = slab->free_pieces.back();
  slab->free_pieces.pop_back();
  slab->piece_size[piece] = static_cast<uint32_t>(bytes);
  slab->pieces_used++;
  if (slab->free_pieces.empty()) forget_partial(context, slab, low);
  *address = slab->base + uint64_t{piece} * slab->piece_bytes;
  return CUDA_SUCCESS;
}

CUresult free_piece(Driver *driver, Area *slab, CUdeviceptr address) {
  uint64_t piece = (address - slab->base) / slab->piece_bytes;
  if ((address - slab->base) % slab->piece_bytes != 0 || slab->piece_size[piece] == 0) return CUDA_ERROR_INVALID_VALUE;
  bool low = is_low(slab);
  auto &list = slab->context->partial_slabs[low][slab->size_class];
  slab->piece_size[piece] = 0;
  slab->pieces_used--;
  if (slab->free_pieces.empty()) {
    slab->partial_index = static_cast<int64_t>(list.size());
    list.push_back(slab);
  }
  slab->free_pieces.push_back(static_cast<uint16_t>(piece));
  if (slab->pieces_used == 0) {
    forget_partial(slab->context, slab, low);
    free_area(driver, slab);
  }
  return CUDA_SUCCESS;
}

}  // namespace

void link_area(Context *context, Area *area) {
  area->context = context;
  area->previous = nullptr;
  area->next = context->areas;
  if (context->areas != nullptr) context->areas->previous = area;
  context->areas = area;
}

void unlink_area(Context *context, Area *area) {
  if (area->previous != nullptr)
    area->previous->next = area->next;
  else
    context->areas = area->next;
  if (area->next != nullptr) area->next->previous = area->previous;
}

CUresult allocate_area(Driver *driver, Context *context, size_t bytes, AreaKind kind, BlockUse use, bool low,
                       Area **out) {
  Area *area = kind == AreaKind::kLinear ? driver->new_area() : new Area;
  area->kind = kind;
  CUresult result = back_area(driver, context, bytes, use, low, area);
  if (result == CUDA_SUCCESS) *out = area;
  return result;
}

CUresult allocate_linear(Driver *driver, Context *context, size_t bytes, bool low, CUdeviceptr *address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > context->device->blocks.total_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (bytes <= kSlabLimit) return allocate_piece(driver, context, bytes, low, address);
  Area *area;
  CUresult result = allocate_area(driver, context, bytes, AreaKind::kLinear, BlockUse::kLinear, low, &area);
  if (result == CUDA_SUCCESS) *address = area->base;
  return result;
}

// Takes an area out of the world, whatever its kind.
void free_area(Driver *driver, Area *area) {
  if (area->context != nullptr) unlink_area(area->context, area);
  driver->addresses.leave(area);
  if (area->kind == AreaKind::kImported) driver->imports.erase(area);
  if (area->kind == AreaKind::kManaged) {
    driver->managed.erase(area);
    if (area->resident_on != nullptr) area->resident_on->blocks.give(area->blocks, false);
    // Back to an address that only the window reserves, and the host's pages with it.
    mmap(reinterpret_cast<void *>(area->base), area->bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else if (area->share_id != 0) {
    drop_share(driver, area->share_id);
  } else {
    area->device->blocks.give(area->blocks, area->touched);
  }
  driver->addresses.release(area->base, area->bytes);
  driver->delete_area(area);
}

CUresult free_address(Driver *driver, CUdeviceptr address) {
  Area *area = driver->addresses.find(address);
  if (area == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (area->kind) {
    case AreaKind::kSlab:
      return free_piece(driver, area, address);
    case AreaKind::kLinear:
    case AreaKind::kManaged:
      if (address != area->base) return CUDA_ERROR_INVALID_VALUE;
      free_area(driver, area);
      return CUDA_SUCCESS;
    case AreaKind::kExtent:
    case AreaKind::kGraph:
      return free_to_pool(driver, address, false);
    case AreaKind::kExternal:
      return free_external_buffer(driver, area, address);
    default:
      return CUDA_ERROR_INVALID_VALUE;  // arrays, imports and reservations have calls of their own
  }
}

namespace {

void evict(Area *area) {
  if (area->resident_on != nullptr) area->resident_on->blocks.give(area->blocks, false);
  area->blocks.clear();
  area->resident_on = nullptr;
}

}  // namespace

void evict_managed(Driver *driver, Device *device) {
  for (Area *area : driver->managed)
    if (area->resident_on == device) evict(area);
}

// Moves managed memory to a device. Other managed memory gives way as far as it must; what does not fit even so stays on
// the host: managed memory may exceed the device.
void make_resident(Driver *driver, Area *area, Device *device) {
  if (area->resident_on == device && area->blocks.size() * kBlockBytes == area->bytes) return;
  evict(area);
  auto free_bytes = [&] { return device->blocks.free_bytes(*driver->link.node()); };
  for (Area *other : driver->managed) {
    if (free_bytes() >= area->bytes) break;
    if (other->resident_on == device) evict(other);
  }
  // Another process may take the room between the question and the claim; then less of it is asked for.
  for (uint64_t bytes = std::min<uint64_t>(area->bytes, free_bytes()); bytes >= kBlockBytes; bytes /= 2) {
    if (!take_blocks(driver, device, bytes / kBlockBytes * kBlockBytes, BlockUse::kManaged, &area->blocks)) continue;
    area->resident_on = device;
    return;
  }
}

}  // namespace simgpu
