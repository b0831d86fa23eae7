// From what the user asked for, what the site says and what the GPUs are to the limits of a job on this node.
#pragma once

#include <optional>
#include <vector>

#include "base/error.h"
#include "node/node.h"
#include "node/region_limits.h"
#include "node/site_config.h"
#include "options.h"
#include "region/region.h"

namespace vgpu::spank {

// Whether the job gets a region: it asked for a limit, or the site has one for it.
bool wants_limits(const node::SiteConfig &config, const Request &request, unsigned shards);

// One per device, in order; no more than its shards stand for, where `shards` are known. Fault::invalid: the request cannot be met here, whatever other jobs hold.
Error decide_limits(const node::SiteConfig &config, const Request &request, unsigned shards,
                    const std::vector<node::NodeDevice> &devices, std::vector<region::DeviceSpec> *limits);

// A step may repeat its job's limits or ask for more, which changes nothing; asking for less is refused, so that nobody
// believes in a limit that does not hold. `original` is what the job asked for, in case its limits were changed since.
Error check_step(const Request &step, const std::optional<Request> &original, const node::RegionLimits &job);

}  // namespace vgpu::spank
