// Root settles what a job is charged for contexts: a rank that never calls the driver again cannot do so itself.
#pragma once

#include <string>
#include <vector>

#include "processes.h"
#include "region/region.h"

namespace vgpu::node {

inline constexpr unsigned kRest_ms = 200;  // between two looks at a rank that did nothing meanwhile

// `path` is a region that root made, `earlier` and `now` two looks at it, and `processes` what NVML said after the second.
// Ranks that did anything in between, and those of which NVML does not know, are left alone. How many were corrected.
unsigned settle_contexts(const std::string &path, const region::Snapshot &earlier, const region::Snapshot &now,
                         const std::vector<GpuProcess> &processes);

}  // namespace vgpu::node
