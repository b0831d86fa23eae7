// Where Slurm's configuration files are.
#pragma once

#include <string>
#include <vector>

namespace vgpu::node {

// The places where the file called `name` may be, the best first: beside slurm.conf; where that is not told, where slurmd
// looks or keeps it.
std::vector<std::string> slurm_conf_paths(const std::string &name);

}  // namespace vgpu::node
