// What this node is called.
#pragma once

#include <string>

namespace vgpu::node {

// As Slurm calls it; where Slurm does not say, the host's name up to its first dot.
std::string node_name();

}  // namespace vgpu::node
