// Taking a slot in a region.
#pragma once

#include "region.h"

namespace vgpu::region {

struct Claim {
  Fault fault = Fault::none;  // no_slot, or system: out of file descriptors
  unsigned slot = kRootSlot;
  std::uint64_t owner = 0;
  std::uint64_t start_time = 0;
};

// Cleans up after this process as it was before exec, then takes a free slot; sweeps if there is none.
Claim claim_slot(const Region &region);

}  // namespace vgpu::region
