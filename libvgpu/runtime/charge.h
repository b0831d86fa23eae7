// The shape of every hook that allocates: charge, call, record; or leave no trace.
#pragma once

#include "allocations.h"
#include "blocks.h"
#include "contexts.h"
#include "devices.h"
#include "driver/table.h"
#include "imports.h"
#include "pool_memory.h"
#include "refusal.h"
#include "reserve.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

inline constexpr CUresult kNotReady = CUDA_ERROR_SYSTEM_NOT_READY;

// A device that is not the job's is one thing, one that does not exist is another, and the driver's to say.
inline bool exists(CUdevice ordinal) {
  CUuuid uuid;
  return REAL(cuDeviceGetUuid)(&uuid, ordinal) == CUDA_SUCCESS;
}

// What an allocation holds: what it was charged for; perhaps less; or less, and it may be larger than the device.
enum class Size : std::uint8_t { fixed, elastic, managed };

inline bool may_exceed_the_device(unsigned dev, Size size) {
  // A job without a limit may oversubscribe the device with managed memory, as anywhere else.
  return size == Size::managed && !is_limited(dev);
}

// Charges `bytes` on a device. Logs why not.
inline CUresult charge(int dev, std::uint64_t bytes, Size size = Size::fixed) {
  if (dev == kNotInJob) {
    log_not_in_job();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto number = static_cast<unsigned>(dev);
  const bool charged = may_exceed_the_device(number, size)
                           ? rank().force(number, region::Kind::data, bytes) == region::Grant::granted
                           : reserve_memory(number, region::Kind::data, bytes);
  return charged ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// After a call that may have taken untracked memory: it is measured with the next allocation.
inline CUresult remeasure_after(CUresult result) {
  if (result == CUDA_SUCCESS && mode() == Mode::active) note_untracked_growth();
  return result;
}

// The driver says what is wrong. If nothing is, we do not know where the memory is, and nobody may have it.
template <typename Call, typename Undo>
[[gnu::cold]] CUresult call_without_place(Call call, Undo undo) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) undo();
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

// What the driver has of an allocation that `charged` bytes were reserved for: more or less. False: more, and too much.
[[gnu::noinline]] inline bool correct_charge(int dev, std::uint64_t *charged, std::uint64_t real) {
  if (real > *charged && charge(dev, real - *charged) != CUDA_SUCCESS) return false;
  if (real < *charged) rank().take_back(static_cast<unsigned>(dev), region::Kind::data, *charged - real);
  *charged = real;
  return true;
}

// What a call made, and what it really takes.
//   call()     the driver's own
//   actual()   bytes; only after success, as the next two
//   add()      records an Allocation; false: no memory
//   undo()     frees it
template <typename Call, typename Actual, typename Add, typename Undo>
CUresult allocate_blocks(const Place &place, std::uint64_t bytes, Size size, Call call, Actual actual, Add add,
                         Undo undo) {
  const auto dev = static_cast<unsigned>(place.dev);
  const std::uint64_t block = block_bytes(dev, place.ordinal);
  std::uint64_t charged = whole_blocks(bytes, block);
  if (const CUresult refused = charge(place.dev, charged, size); refused != CUDA_SUCCESS) return refused;
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    rank().take_back(dev, region::Kind::data, charged);
    return result;
  }
  Allocation displaced;
  const std::uint64_t real = whole_blocks(actual(), block);
  const bool kept = (real == charged || correct_charge(place.dev, &charged, real)) &&
                    add(Allocation{region::units_for(charged), dev, place.context, size != Size::fixed}, &displaced);
  if (!kept) {
    undo();
    rank().take_back(dev, region::Kind::data, charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (__builtin_expect(displaced.units != 0, false)) give_back(displaced);
  return CUDA_SUCCESS;
}

// work(place) where the calling thread allocates: never on a device that is not the job's.
template <typename Call, typename Undo, typename Work>
CUresult allocate_here(Call call, Undo undo, Work work) {
  Place place;
  if (__builtin_expect(!current_place(&place), false)) return call_without_place(call, undo);
  return __builtin_expect(place.dev == kNotInJob, false) ? charge(place.dev, 0) : work(place);
}

// Linear memory of about `bytes`: call() puts its address into `made`. The address tells which block a small piece is in.
template <typename Pointer, typename Call, typename Actual, typename Undo>
CUresult allocate_linear(const Pointer &made, std::uint64_t bytes, Size size, Call call, Actual actual, Undo undo) {
  return allocate_here(call, undo, [&](const Place &place) {
    const auto dev = static_cast<unsigned>(place.dev);
    const std::uint64_t block = block_bytes(dev, place.ordinal);
    const auto add = [&](const Allocation &allocation, Allocation *displaced) {
      return add_large(made, block, allocation, displaced);
    };
    if (bytes >= block) {
      settle_untracked_when_due();
      return allocate_blocks(place, bytes, size, call, actual, add, undo);
    }

    settle_untracked_now_and_then();
    const CUresult result = call();
    if (result != CUDA_SUCCESS) return result;
    if (__builtin_expect(!is_piece(made, actual(), block), false)) {
      // Larger than it looked, or across the border of two blocks.
      const auto called = [] { return CUDA_SUCCESS; };
      const auto most = [&] { return actual() + block; };
      const CUresult refused = allocate_blocks(place, most(), size, called, most, add, [] {});
      if (refused != CUDA_SUCCESS) undo();
      return refused;
    }
    const Allocation whole = {region::units_for(block), dev, place.context, size != Size::fixed, true};
    const Within within = may_exceed_the_device(dev, size) ? Within::anything : Within::limit;
    if (__builtin_expect(keep_piece(made, block, whole, within), true)) return CUDA_SUCCESS;
    undo();
    return CUDA_ERROR_OUT_OF_MEMORY;
  });
}

// Out of the books before the driver may give the same address to another thread, and back in if it does not free.
template <typename Call>
CUresult release(std::uint64_t key, Call call) {
  const Mode now = mode();
  if (now != Mode::active) return now == Mode::inert ? call() : kNotReady;
  Allocation allocation, displaced;
  const bool ours = take_allocation(key, &allocation);
  const CUresult result = call();
  if (ours && result == CUDA_SUCCESS) give_back(allocation);
  if (ours && result != CUDA_SUCCESS) add_allocation(key, allocation, &displaced);
  return result;
}

// Out of line, or every free pays for it.
[[gnu::noinline]] inline void freed_what_is_in_no_table(std::uint64_t pointer, CUresult result) {
  // Perhaps another process's, opened as a pool's pointer: that is freed as if it were ours.
  if (result == CUDA_SUCCESS && has_imports()) close_import(pointer);
  // Perhaps a pool's: it goes back there.
  note_pools_may_shrink();
  recheck_pools_when_due();
}

template <typename Call>
CUresult release_pointer(std::uint64_t pointer, Call call) {
  const Mode now = mode();
  if (now != Mode::active) return now == Mode::inert ? call() : kNotReady;
  Allocation allocation;
  const Taken taken = take_pointer(pointer, &allocation);
  const CUresult result = call();
  if (__builtin_expect(result != CUDA_SUCCESS && taken != Taken::not_ours, false)) {
    put_back_pointer(pointer, allocation, taken);
  } else if (taken == Taken::not_ours) {
    freed_what_is_in_no_table(pointer, result);
  } else if (__builtin_expect(allocation.shared && taken != Taken::piece, false)) {
    leave_behind(allocation);
    settle_untracked(allocation.dev, region::Kind::data);
  } else if (taken != Taken::piece) {
    give_back(allocation);
  }
  return result;
}

}  // namespace vgpu::runtime
