// What this process has allocated: from a pointer or handle to how much was charged for it, and where.
//
// Pointers are kept by the driver's block they lie in (blocks.h): a large allocation is alone in its blocks, small ones are
// pieces of one that they share, which is charged whole. So the address of a piece tells whether the driver opened a block
// for it, and a block has one entry however many pieces are in it.
//
// Sixty-four hash maps, each with its lock: threads rarely meet, and a look-up touches one line.
#pragma once

#include <bit>
#include <cstdint>

#include "region/layout.h"
#include "region/words.h"

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

// False: no memory for the entry. `displaced` gets what was there before (the driver freed it without our knowledge), if
// anything was.
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
bool share_allocation(std::uint64_t key, Allocation *allocation);

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

// An allocation in one word, as it is in the table.
namespace allocation_words {

using Units = region::Field<0, 33>;
using Pieces = region::Field<0, 28>;  // of a block of them, and the logarithm of its units
using BlockShift = region::Field<28, 5>;
using Dev = region::Field<33, 6>;
using Context = region::Field<39, 16>;
using Elastic = region::Field<55, 1>;
using Small = region::Field<56, 1>;
using Shared = region::Field<57, 1>;
using Unpaid = region::Field<58, 1>;

// What a paid block of pieces must have in common with one more.
inline constexpr std::uint64_t kSameBlock =
    Dev::put(Dev::kMask) | Context::put(Context::kMask) | Small::put(1) | Unpaid::put(1);

constexpr std::uint64_t pack_rest(const Allocation &a) {
  return Dev::put(a.dev) | Context::put(a.context) | Elastic::put(a.elastic) | Small::put(a.small) |
         Shared::put(a.shared) | Unpaid::put(a.unpaid);
}
constexpr std::uint64_t pack(const Allocation &a) { return Units::put(a.units) | pack_rest(a); }
constexpr std::uint64_t pack_first_piece(const Allocation &a) {
  return Pieces::put(1) | BlockShift::put(static_cast<unsigned>(std::countr_zero(a.units))) | pack_rest(a);
}
constexpr std::uint64_t units_in(std::uint64_t value) {
  return Small::get(value) != 0 ? std::uint64_t{1} << BlockShift::get(value) : Units::get(value);
}

constexpr Allocation unpack(std::uint64_t value) {
  return {units_in(value),
          static_cast<unsigned>(Dev::get(value)),
          static_cast<unsigned>(Context::get(value)),
          Elastic::get(value) != 0,
          Small::get(value) != 0,
          Shared::get(value) != 0,
          Unpaid::get(value) != 0};
}

bool add_allocation(std::uint64_t key, std::uint64_t word, std::uint64_t *displaced);
bool take_allocation(std::uint64_t key, std::uint64_t *word);
bool add_large(std::uint64_t pointer, std::uint64_t block, std::uint64_t word, std::uint64_t *displaced);
Piece add_piece(std::uint64_t pointer, std::uint64_t block, std::uint64_t word, bool (*pay)(unsigned, std::uint64_t),
                std::uint64_t *displaced);
Taken take_pointer(std::uint64_t pointer, std::uint64_t *word);
bool share_pointer(std::uint64_t pointer, std::uint64_t *word);
bool share_allocation(std::uint64_t key, std::uint64_t *word);

}  // namespace allocation_words

// ---- inline, so that on hot paths an allocation stays in a register ---------------------------------------------------

inline bool add_allocation(std::uint64_t key, const Allocation &allocation, Allocation *displaced) {
  std::uint64_t old = 0;
  const bool added = allocation_words::add_allocation(key, allocation_words::pack(allocation), &old);
  if (__builtin_expect(old != 0, false)) *displaced = allocation_words::unpack(old);
  return added;
}
inline bool take_allocation(std::uint64_t key, Allocation *allocation) {
  std::uint64_t word = 0;
  const bool taken = allocation_words::take_allocation(key, &word);
  *allocation = allocation_words::unpack(word);
  return taken;
}
inline bool add_large(std::uint64_t pointer, std::uint64_t block, const Allocation &allocation, Allocation *displaced) {
  std::uint64_t old = 0;
  const bool added = allocation_words::add_large(pointer, block, allocation_words::pack(allocation), &old);
  if (__builtin_expect(old != 0, false)) *displaced = allocation_words::unpack(old);
  return added;
}
inline Piece add_piece(std::uint64_t pointer, std::uint64_t block, const Allocation &allocation,
                       bool (*pay)(unsigned dev, std::uint64_t block), Allocation *displaced) {
  std::uint64_t old = 0;
  const std::uint64_t first = allocation_words::pack_first_piece(allocation);
  const Piece piece = allocation_words::add_piece(pointer, block, first, pay, &old);
  if (__builtin_expect(old != 0, false)) *displaced = allocation_words::unpack(old);
  return piece;
}
inline Taken take_pointer(std::uint64_t pointer, Allocation *allocation) {
  std::uint64_t word = 0;
  const Taken taken = allocation_words::take_pointer(pointer, &word);
  *allocation = allocation_words::unpack(word);
  return taken;
}
inline bool share_pointer(std::uint64_t pointer, Allocation *allocation) {
  std::uint64_t word = 0;
  const bool shared = allocation_words::share_pointer(pointer, &word);
  *allocation = allocation_words::unpack(word);
  return shared;
}
inline bool share_allocation(std::uint64_t key, Allocation *allocation) {
  std::uint64_t word = 0;
  const bool shared = allocation_words::share_allocation(key, &word);
  *allocation = allocation_words::unpack(word);
  return shared;
}

}  // namespace vgpu::runtime
