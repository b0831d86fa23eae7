// The directory that holds all regions of a node: made once, cleaned at every start of slurmd and after every job.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "node/site_config.h"

namespace vgpu::spank {

// After the job. Whoever still runs keeps its mapping and harms nobody.
Error remove_job(const node::SiteConfig &config, std::uint32_t job_id);

// When the plugin first ran on this node, in seconds since 1970; now, if it never did. Jobs that are older had no prolog of
// its, and nothing was decided about them.
Error first_start(const node::SiteConfig &config, std::int64_t *seconds);

// The directory for everything, on a small file system of its own; and nothing left in it by creators that were killed.
Error make_region_dir(const node::SiteConfig &config);
Error clean_region_dir(const node::SiteConfig &config);

}  // namespace vgpu::spank
