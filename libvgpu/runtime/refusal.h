// The one line a process says when the limit refuses it something.
#pragma once

#include "region/region.h"

namespace vgpu {

// Who holds the memory, what was asked for, what would help. Once per process.
void say_refusal(unsigned dev, std::uint64_t asked, Grant grant);
// A device that CUDA shows but the job was not given.
void say_not_in_job();

}  // namespace vgpu
