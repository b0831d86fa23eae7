// The one way to take memory for a call: from the limit, else from what this process keeps idle, else not.
#pragma once

#include "region/region.h"

namespace vgpu::runtime {

// False: refused, and logged.
bool reserve_memory(unsigned dev, region::Kind kind, std::uint64_t bytes);
// The same from within a measurement of untracked memory, which cannot wait for another one.
bool reserve_measured(unsigned dev, region::Kind kind, std::uint64_t bytes);

}  // namespace vgpu::runtime
