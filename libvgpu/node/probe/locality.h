// Where the GPUs sit: their NUMA node and the cores near them, from hwloc.
#pragma once

#include <string>

#include "node/node.h"

namespace vgpu {

// Sets numa_node and cpuset of the devices whose PCI bus id the topology knows. `xml`: a topology saved by lstopo; empty:
// this machine's. Built without hwloc it leaves them unknown.
Error find_localities(const std::string &xml, Node *node);

}  // namespace vgpu
