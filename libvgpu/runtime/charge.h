// The shape of every hook that allocates: charge, call, record; or leave no trace.
#pragma once

#include "allocations.h"
#include "contexts.h"
#include "devices.h"
#include "driver/table.h"
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

// Charges `bytes` on a device. Logs why not.
inline CUresult charge(int dev, std::uint64_t bytes, Size size = Size::fixed) {
  if (dev == kNotInJob) {
    log_not_in_job();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // A job without a limit may oversubscribe the device with managed memory, as anywhere else.
  const auto number = static_cast<unsigned>(dev);
  const bool whatever = size == Size::managed && !is_limited(number);
  const bool charged = whatever ? rank().force(number, region::Kind::data, bytes) == region::Grant::granted
                                : reserve_memory(number, region::Kind::data, bytes);
  return charged ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// After a call that may have taken untracked memory: it is measured with the next allocation.
inline CUresult remeasure_after(CUresult result) {
  if (result == CUDA_SUCCESS && mode() == Mode::active) note_untracked_growth();
  return result;
}

// An allocation of at most `bytes`.
//   call()     the driver's own
//   key()      what it allocated; only after success
//   actual()   how much that really was
//   undo()     frees it
template <typename Call, typename Key, typename Actual, typename Undo>
CUresult allocate(std::uint64_t bytes, Size size, Call call, Key key, Actual actual, Undo undo) {
  const Mode now = mode();
  if (now != Mode::active) return now == Mode::inert ? call() : kNotReady;
  settle_untracked_when_due();
  Place place;
  if (!current_place(&place)) {
    // The driver says what is wrong. If nothing is, we do not know where the memory is, and nobody may have it.
    const CUresult result = call();
    if (result == CUDA_SUCCESS) undo();
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
  }
  if (const CUresult refused = charge(place.dev, bytes, size); refused != CUDA_SUCCESS) return refused;
  const auto dev = static_cast<unsigned>(place.dev);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    rank().release(dev, region::Kind::data, bytes);
    return result;
  }

  std::uint64_t units = region::units_for(bytes);
  const std::uint64_t real_units = region::units_for(actual());
  Allocation displaced;
  bool kept = true;
  if (real_units > units) {
    kept = charge(place.dev, region::bytes_of(real_units - units)) == CUDA_SUCCESS;
    if (kept) units = real_units;
  } else if (real_units < units) {
    rank().release(dev, region::Kind::data, region::bytes_of(units - real_units));
    units = real_units;
  }
  kept = kept && add_allocation(key(), {units, dev, place.context, size != Size::fixed}, &displaced);
  if (!kept) {
    undo();
    rank().release(dev, region::Kind::data, region::bytes_of(units));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (displaced.units != 0) rank().release(displaced.dev, region::Kind::data, region::bytes_of(displaced.units));
  return CUDA_SUCCESS;
}

template <typename Call, typename Key, typename Undo>
CUresult allocate(std::uint64_t bytes, Size size, Call call, Key key, Undo undo) {
  return allocate(
      bytes, size, call, key, [bytes] { return bytes; }, undo);
}

// Out of the books before the driver may give the same address to another thread, and back in if it does not free.
template <typename Call>
CUresult release(std::uint64_t key, Call call) {
  const Mode now = mode();
  if (now != Mode::active) return now == Mode::inert ? call() : kNotReady;
  Allocation allocation;
  const bool ours = take_allocation(key, &allocation);
  const CUresult result = call();
  if (!ours) {
    // Perhaps a pool's: it goes back there.
    note_pools_may_shrink();
    recheck_pools_when_due();
    return result;
  }
  if (result == CUDA_SUCCESS) {
    rank().release(allocation.dev, region::Kind::data, region::bytes_of(allocation.units));
  } else {
    Allocation displaced;
    add_allocation(key, allocation, &displaced);
  }
  return result;
}

}  // namespace vgpu::runtime
