// Where the GPUs sit: their NUMA node and the cores near them, from hwloc.
#pragma once

#include <string>

#include "node.h"

namespace vgpu::node {

// Sets numa_node and cpuset of the devices whose PCI bus id the topology knows. `xml`: a topology saved by lstopo; empty:
// this machine's. Built without hwloc it leaves them unknown.
Error find_localities(const std::string &xml, Node *node);

struct NumaNode {
  int number = 0;
  std::string cpus;
  std::uint64_t memory_bytes = 0;
};

// Those of the machine, or of `xml`. Built without hwloc it knows none.
Error list_numa_nodes(const std::string &xml, std::vector<NumaNode> *nodes);

}  // namespace vgpu::node
