// The lines a user reads when his step has ended: what the job used of its limits on this node.
#pragma once

#include <string>
#include <vector>

#include "config.h"
#include "region/region.h"

namespace vgpu::spank {

// One line per GPU; none for a job that has not touched it, unless the site wants them all.
std::vector<std::string> summary_lines(const Snapshot &region, const std::string &node, Summary mode);

}  // namespace vgpu::spank
