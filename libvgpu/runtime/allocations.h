// What this process has allocated: from a pointer or handle to how much was charged for it, and where.
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
  std::uint64_t units = 0;
  unsigned dev = 0;
  unsigned context = 0;  // number of the context it goes down with; see contexts.h
  // May hold less than was charged: managed memory that is elsewhere, arrays, whose size no call tells.
  bool elastic = false;
};

constexpr std::uint64_t allocation_key(Handle handle, std::uint64_t value) {
  return value | static_cast<std::uint64_t>(handle) << 62;
}

// False: no memory for the entry. `displaced` gets what was there before (the driver freed it without our knowledge), or
// zero units.
bool add_allocation(std::uint64_t key, const Allocation &allocation, Allocation *displaced);
// False: nobody charged for it.
bool take_allocation(std::uint64_t key, Allocation *allocation);
// Takes all that a context held; adds it up in `units`, by device.
void take_allocations_of(unsigned context, std::uint64_t units[region::kMaxDevices]);
// What is in the tables for one device. Less than what is charged while some thread is between the driver and here.
struct Recorded {
  std::uint64_t units = 0;
  std::uint64_t elastic_units = 0;  // of these

  bool operator==(const Recorded &) const = default;
};
Recorded recorded(unsigned dev);

}  // namespace vgpu::runtime
