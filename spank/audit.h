// Compares what NVML says of a job's processes with what the job's region counts.
#pragma once

#include "job_region.h"
#include "node/site_config.h"

namespace vgpu::spank {

// Names, and with audit=kill ends, processes of the job that hold GPU memory and are not ranks of its region: a static
// binary, say, or one that was started without LD_PRELOAD. Does nothing with audit=off.
// False: NVML or the region cannot be read, and the next look would cost as much and show as little.
bool audit_job(const node::SiteConfig &config, const Job &job);

}  // namespace vgpu::spank
