// vgpuctl topo: GPUs, NUMA nodes, cores, and the jobs on them.
#include <algorithm>

#include "columns.h"
#include "commands.h"
#include "node/values.h"
#include "status.h"
#include "topology.h"

namespace vgpu::ctl {

namespace {

// As slurmd found them; where it never ran, as they are now.
Error find_gpus(const Options &options, node::Node *node) {
  const bool is_of_this_machine = options.hwloc_xml.empty();
  if (is_of_this_machine && !read_node(options.directory().node_file(), region::Trust::root_or_self, node)) return {};
  return probe_devices(options.probe(), node);
}

std::vector<Tenant> tenants_of(const NodeView &view, const std::string &uuid) {
  std::vector<Tenant> tenants;
  for (const RegionView &region : view.regions) {
    for (const DeviceView &device : region.devices) {
      if (device.uuid == uuid) tenants.push_back({region.job, region.user, device.limit, device.used});
    }
  }
  return tenants;
}

std::vector<NumaGroup> group_by_numa(const node::Node &node, const std::vector<node::NumaNode> &numa_nodes,
                                     const NodeView &view) {
  std::vector<NumaGroup> groups;
  for (const node::NumaNode &numa : numa_nodes) groups.push_back({numa, {}});
  groups.push_back({{-1, "", 0}, {}});
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    const node::NodeDevice &device = node.devices[i];
    auto place = std::find_if(groups.begin(), groups.end(), [&](const NumaGroup &candidate) {
      return candidate.node.number == device.identity.numa_node;
    });
    if (place == groups.end()) place = std::prev(groups.end());
    const std::string number = std::to_string(device.gres_index >= 0 ? device.gres_index : static_cast<int>(i));
    place->gpus.push_back({number, device, tenants_of(view, device.identity.uuid)});
  }
  if (groups.back().gpus.empty()) groups.pop_back();
  return groups;
}

std::string text_of(const std::string &host, const std::vector<NumaGroup> &groups) {
  std::string text = host + '\n';
  for (const NumaGroup &numa : groups) {
    if (numa.node.number < 0) {
      text += "NUMA node unknown\n";
    } else {
      text += "NUMA node " + std::to_string(numa.node.number) + "  cores " +
              (numa.node.cpus.empty() ? kUnknown : numa.node.cpus) + "  " + node::format_bytes(numa.node.memory_bytes) +
              '\n';
    }
    for (const PlacedGpu &gpu : numa.gpus) {
      const region::DeviceIdentity &identity = gpu.device.identity;
      std::uint64_t promised = 0;
      for (const Tenant &tenant : gpu.tenants) promised += tenant.limit;
      text += "  GPU " + gpu.number + "  " + identity.pci_bus_id + "  " + identity.uuid + "  " +
              node::format_bytes(identity.memory_bytes) + ", " + node::format_bytes(promised) + " promised\n";
      for (const Tenant &tenant : gpu.tenants) {
        text += "    job " + tenant.job + "  " + tenant.user + "  " + size_text(tenant.used, {}) + " of " +
                node::format_bytes(tenant.limit) + '\n';
      }
    }
  }
  return text;
}

}  // namespace

int topo(const Options &options) {
  node::Node node;
  std::vector<node::NumaNode> numa_nodes;
  Error error = find_gpus(options, &node);
  if (!error) error = list_numa_nodes(options.hwloc_xml, &numa_nodes);
  if (error) {
    complain(error);
    return kRefused;
  }
  const NodeView view = look(options, region::Detail::memory);
  const std::vector<NumaGroup> groups = group_by_numa(node, numa_nodes, view);
  if (!print(options.svg ? topology_svg(view.host, groups) : text_of(view.host, groups))) return kRefused;
  return complain_about(view);
}

}  // namespace vgpu::ctl
