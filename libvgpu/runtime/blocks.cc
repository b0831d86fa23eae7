#include "blocks.h"

#include <bit>

#include "driver/table.h"
#include "reserve.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

std::atomic<std::uint64_t> known_blocks[region::kMaxDevices];

namespace {

constexpr std::uint64_t kUsualBlock = 2 << 20;  // of every driver seen so far
constexpr std::uint64_t kLeastBlock = 64 << 10, kMostBlock = 1 << 30;

constexpr bool makes_sense(std::uint64_t block) {
  return std::has_single_bit(block) && block >= kLeastBlock && block <= kMostBlock;
}

}  // namespace

[[gnu::cold]] std::uint64_t ask_for_block(unsigned dev, CUdevice ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  std::size_t asked = 0;
  const CUresult result = REAL(cuMemGetAllocationGranularity)(&asked, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  std::uint64_t block = result == CUDA_SUCCESS ? asked : 0;
  if (!makes_sense(block)) block = job_region().block_bytes(dev);
  if (!makes_sense(block)) block = kUsualBlock;
  // Once and for all: what is in the table is found by it.
  std::uint64_t known = 0;
  return known_blocks[dev].compare_exchange_strong(known, block, std::memory_order_relaxed) ? block : known;
}

namespace {

bool charge_block(unsigned dev, std::uint64_t block, Within within) {
  if (within == Within::limit) return reserve_memory(dev, region::Kind::other, block);
  return rank().force(dev, region::Kind::other, block) == region::Grant::granted;
}

// Refused. If another thread has charged the block meanwhile, the piece can stay.
bool take_piece_out(std::uint64_t pointer) {
  Allocation block;
  const Taken taken = take_pointer(pointer, &block);
  if (block.unpaid) return true;
  put_back_pointer(pointer, block, taken);
  return false;
}

}  // namespace

[[gnu::cold]] bool finish_piece(std::uint64_t pointer, const Allocation &whole, Within within, Piece piece,
                                const Allocation &displaced) {
  const std::uint64_t block = region::bytes_of(whole.units);
  if (displaced.units != 0) give_back(displaced);
  if (piece != Piece::unpaid_block) return piece == Piece::new_block;
  if (!charge_block(whole.dev, block, within)) return !take_piece_out(pointer);
  if (!pay_block(pointer, block)) rank().add_idle(whole.dev, block);
  rank().top_up_idle(whole.dev, block);
  return true;
}

void leave_behind(const Allocation &allocation) {
  const std::uint64_t bytes = region::bytes_of(allocation.units);
  if (allocation.small) {
    // Untracked data is charged as data. Charged twice for a moment rather than not at all.
    rank().force(allocation.dev, region::Kind::data, bytes);
    rank().release(allocation.dev, region::Kind::other, bytes);
  }
  untrack_data(allocation.dev, bytes);
}

void put_back_pointer(std::uint64_t pointer, const Allocation &allocation, Taken taken) {
  Allocation displaced;
  if (taken == Taken::large) {
    add_allocation(pointer, allocation, &displaced);
    return;
  }
  // The last piece brings its charge back. Other pieces may have come and gone meanwhile, and their block with its charge.
  const auto comes_with_charge = [](unsigned, std::uint64_t) { return true; };
  const std::uint64_t block = region::bytes_of(allocation.units);
  const Piece piece = add_piece(pointer, block, allocation, comes_with_charge, &displaced);
  if (piece == Piece::new_block && taken == Taken::piece) rank().force(allocation.dev, region::Kind::other, block);
  if (piece == Piece::shared_block && taken == Taken::last_piece) rank().add_idle(allocation.dev, block);
}

void give_back_all_of(unsigned context) {
  Given given;
  take_allocations_of(context, &given);
  for (unsigned dev = 0; dev < job_region().ndev(); ++dev) {
    if (given.data_units[dev] != 0) {
      rank().release(dev, region::Kind::data, region::bytes_of(given.data_units[dev]));
    }
    if (given.small_units[dev] != 0) {
      rank().release(dev, region::Kind::other, region::bytes_of(given.small_units[dev]));
    }
  }
}

}  // namespace vgpu::runtime
