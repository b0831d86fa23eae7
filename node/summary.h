// The lines that tell users, when their ranks have ended, what these used of their limits on this node.
#pragma once

#include <string>
#include <vector>

#include "region/region.h"

namespace vgpu::node {

// One line per GPU, which begins with `whose`: "job 7 on n1". Of GPUs that were not touched only if `unused` is set.
std::vector<std::string> summary_lines(const region::Snapshot &region, const std::string &whose, bool unused);

}  // namespace vgpu::node
