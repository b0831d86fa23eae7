// This node's GPUs, from the node file; and the file itself, brought up to date by a program with a deadline.
#pragma once

#include <vector>

#include "base/error.h"
#include "node/node.h"
#include "node/site_config.h"

namespace vgpu::spank {

// Asks NVML and hwloc anew and replaces the node file; an error leaves it as it was. One at a time on a node.
Error refresh_node(const node::SiteConfig &config);
// The same, behind the back of the caller: slurmd must not wait for a driver that hangs. Then measures what contexts take
// on GPUs of which that is not known.
void refresh_node_in_background(const node::SiteConfig &config);

// Those that Slurm calls `gres_indices`, in that order. Asks NVML only when there is no node file.
Error find_devices(const node::SiteConfig &config, const std::vector<unsigned> &gres_indices,
                   std::vector<node::NodeDevice> *devices);

}  // namespace vgpu::spank
