// Which jobs have a step on this node, by a witness that no user can forge: Slurm's own daemons.
#pragma once

#include <set>
#include <string>

namespace vgpu::node {

// The ids of the jobs for which a slurmstepd of root's runs here: in our PID namespace, which is the node's.
std::set<std::string> jobs_with_steps();

}  // namespace vgpu::node
