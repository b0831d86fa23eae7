// The driver's blocks: what device memory is taken in, whatever size was asked for.
//
// Nobody can say before the call whether a small allocation will open a block, so one is charged ahead (idle, see
// region::Rank) and the address that comes back tells. If a block was opened, the idle one is it, and the next one is
// charged; if none was idle and the limit leaves no other, the call is undone.
#pragma once

#include <atomic>

#include "allocations.h"
#include "driver/cuda_api.h"
#include "region/layout.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

// 0: not asked yet. The same in every process, so a forked child may inherit it.
extern std::atomic<std::uint64_t> known_blocks[region::kMaxDevices];
std::uint64_t ask_for_block(unsigned dev, CUdevice ordinal);

// A power of two, in bytes.
inline std::uint64_t block_bytes(unsigned dev, CUdevice ordinal) {
  const std::uint64_t known = known_blocks[dev].load(std::memory_order_relaxed);
  return __builtin_expect(known != 0, true) ? known : ask_for_block(dev, ordinal);
}

// What the driver takes for that much. What makes no sense stays so.
constexpr std::uint64_t whole_blocks(std::uint64_t bytes, std::uint64_t block) {
  return bytes <= ~std::uint64_t{0} - block ? (bytes + block - 1) & ~(block - 1) : ~std::uint64_t{0};
}

// One more piece of a block that holds at most what `whole` says. False: there is no room for the block, or for the entry;
// undo the call.
enum class Within : std::uint8_t { limit, anything };
bool finish_piece(std::uint64_t pointer, const Allocation &whole, Within within, Piece piece,
                  const Allocation &displaced);
// And charges the next one, if that was the last.
inline bool use_idle_block(unsigned dev, std::uint64_t block) {
  bool was_last = false;
  if (!rank().use_idle(dev, block, &was_last)) return false;
  if (__builtin_expect(was_last, false) && rank().top_up_idle(dev, block)) settle_untracked_next_time();
  return true;
}

inline bool keep_piece(std::uint64_t pointer, std::uint64_t block, const Allocation &whole, Within within) {
  Allocation displaced;
  const Piece piece = add_piece(pointer, block, whole, use_idle_block, &displaced);
  const bool paid = piece == Piece::shared_block || (piece == Piece::new_block && displaced.units == 0);
  return __builtin_expect(paid, true) || finish_piece(pointer, whole, within, piece, displaced);
}

// What was taken out of the table, or displaced there, and is gone.
void give_back(const Allocation &allocation);
// What was taken out and will be gone some time, or is others' to free: measured until then.
void leave_behind(const Allocation &allocation);
// What was taken out, and the driver did not free.
void put_back_pointer(std::uint64_t pointer, const Allocation &allocation, Taken taken);
// All that a context held, after the driver destroyed it.
void give_back_all_of(unsigned context);

}  // namespace vgpu::runtime
