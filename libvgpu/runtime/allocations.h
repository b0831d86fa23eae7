// What this process has allocated: from a pointer or handle to how much was charged for it, and where.
//
// Pointers are kept by the driver's block they lie in (blocks.h): a large allocation is alone in its blocks, small ones are
// pieces of one that they share, which is charged whole. So the address of a piece tells whether the driver opened a block
// for it, and a block has one entry however many pieces are in it.
//
// Sixty-four hash maps, each with its lock: threads rarely meet, and a look-up touches one line.
#pragma once

#include <cstdint>

#include "region/layout.h"

namespace vgpu::runtime {

// Pointers and handles come from different spaces.
enum class Handle : std::uint64_t {
  pointer,
  array,
  mipmap,
  ours,  // a number of our own: physical memory (physical.h), a pool (pool_memory.h)
};

struct Allocation {
  std::uint64_t units = 0;  // of a piece: of its block
  unsigned dev = 0;
  unsigned context = 0;  // number of the context it goes down with; see contexts.h
  // May hold less than was charged: managed memory that is elsewhere, arrays, whose size no call tells.
  bool elastic = false;
  bool small = false;   // a block of pieces: charged as Kind::other, everything else as Kind::data
  bool shared = false;  // others may hold on to it when it is freed
  bool unpaid = false;  // nothing was charged for it yet
};

constexpr std::uint64_t allocation_key(Handle handle, std::uint64_t value) {
  return value | static_cast<std::uint64_t>(handle) << 62;
}

// False: no memory for the entry. `displaced` gets what was there before (the driver freed it without our knowledge), or
// zero units.
bool add_allocation(std::uint64_t key, const Allocation &allocation, Allocation *displaced);
// False: nobody charged for it.
bool take_allocation(std::uint64_t key, Allocation *allocation);

// Linear memory is found again by its pointer alone. `block` is the device's, a power of two.
constexpr std::uint64_t block_of(std::uint64_t pointer, std::uint64_t block) { return pointer & ~(block - 1); }
// What lies in one block is a piece of it. Anything else has its blocks to itself, and where a driver puts something else
// there all the same, it is charged for them twice.
constexpr bool is_piece(std::uint64_t pointer, std::uint64_t bytes, std::uint64_t block) {
  return bytes < block && block_of(pointer, block) != 0 &&
         block_of(pointer + bytes - 1, block) == block_of(pointer, block);
}
// False, `displaced`: as above.
bool add_large(std::uint64_t pointer, std::uint64_t block, const Allocation &allocation, Allocation *displaced);
// `allocation` says what the whole block takes, should this be its first piece. pay() is asked under a lock then, whether
// that is charged already; if it is not, the block is unpaid, for this thread and for others that get pieces of it, until
// one of them has charged it or all have undone their calls.
enum class Piece : std::uint8_t {
  shared_block,  // the block is paid
  new_block,     // the driver opened it, and it is paid now
  unpaid_block,
  no_memory,
};
Piece add_piece(std::uint64_t pointer, std::uint64_t block, const Allocation &allocation,
                bool (*pay)(unsigned dev, std::uint64_t block), Allocation *displaced);
// The block was charged. False: somebody else was first, so that is once too often.
bool pay_block(std::uint64_t pointer, std::uint64_t block);

enum class Taken : std::uint8_t {
  not_ours,
  large,
  piece,       // its block stays
  last_piece,  // and with it its block
};
// Before the driver may give the same address to another thread.
Taken take_pointer(std::uint64_t pointer, Allocation *allocation);
// Marks what is at an address as shared. False: nobody charged for it.
bool share_pointer(std::uint64_t pointer, Allocation *allocation);

// Takes all that a context held; adds it up, by device.
struct Given {
  std::uint64_t data_units[region::kMaxDevices] = {};
  std::uint64_t small_units[region::kMaxDevices] = {};
};
void take_allocations_of(unsigned context, Given *given);

// What is in the tables for one device. Less than what is charged while some thread is between the driver and here.
struct Recorded {
  std::uint64_t units = 0;
  std::uint64_t elastic_units = 0;  // of these

  bool operator==(const Recorded &) const = default;
};
Recorded recorded(unsigned dev);

}  // namespace vgpu::runtime
