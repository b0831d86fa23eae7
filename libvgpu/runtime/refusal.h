// What the limit refuses: counted each time, logged in one line per process.
#pragma once

#include "region/region.h"

namespace vgpu::runtime {

// Logs who holds the memory, what was asked for, what would help.
void refuse(unsigned dev, std::uint64_t asked, region::Grant grant);
// A device that CUDA shows but the job was not given.
void log_not_in_job();

}  // namespace vgpu::runtime
