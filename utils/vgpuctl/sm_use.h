// Which share of the SMs each job uses, from NVML: regions do not know.
#pragma once

#include "view.h"

namespace vgpu::ctl {

// Leaves it unknown where NVML does not answer; that is not worth a word in a list of jobs.
void add_sm_use(const Options &options, NodeView *view);

}  // namespace vgpu::ctl
