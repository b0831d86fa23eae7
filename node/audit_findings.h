// What vgpu-watch found of a job, kept beside its region until a step says it to the user: only steps reach terminals.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "directory.h"

namespace vgpu::node {

Error leave_finding(const JobDirectory &job, const std::string &sentence);
// Each goes to one caller only.
std::vector<std::string> take_findings(const JobDirectory &job);

}  // namespace vgpu::node
