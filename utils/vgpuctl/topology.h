// This node's GPUs where they sit, and the jobs on them.
#pragma once

#include <string>
#include <vector>

#include "node/locality.h"
#include "node/node.h"
#include "view.h"

namespace vgpu::ctl {

struct Tenant {
  std::string job;
  std::string user;
  std::uint64_t limit = 0;
  std::optional<std::uint64_t> used;
};

struct PlacedGpu {
  std::string number;
  node::NodeDevice device;
  std::vector<Tenant> tenants;
};

struct NumaGroup {
  node::NumaNode node;  // -1: nobody knows where these GPUs are
  std::vector<PlacedGpu> gpus;
};

std::string topology_svg(const std::string &host, const std::vector<NumaGroup> &groups);

}  // namespace vgpu::ctl
