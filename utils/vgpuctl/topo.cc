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

std::vector<NumaSeat> seat(const node::Node &node, const std::vector<node::NumaNode> &numa_nodes,
                           const NodeView &view) {
  std::vector<NumaSeat> seats;
  for (const node::NumaNode &numa : numa_nodes) seats.push_back({numa, {}});
  seats.push_back({{-1, "", 0}, {}});
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    const node::NodeDevice &device = node.devices[i];
    auto place = std::find_if(seats.begin(), seats.end(), [&](const NumaSeat &candidate) {
      return candidate.node.number == device.identity.numa_node;
    });
    if (place == seats.end()) place = std::prev(seats.end());
    const std::string number = std::to_string(device.gres_index >= 0 ? device.gres_index : static_cast<int>(i));
    place->gpus.push_back({number, device, tenants_of(view, device.identity.uuid)});
  }
  if (seats.back().gpus.empty()) seats.pop_back();
  return seats;
}

std::string text_of(const std::string &host, const std::vector<NumaSeat> &seats) {
  std::string text = host + '\n';
  for (const NumaSeat &numa : seats) {
    if (numa.node.number < 0) {
      text += "NUMA node unknown\n";
    } else {
      text += "NUMA node " + std::to_string(numa.node.number) + "  cores " +
              (numa.node.cpus.empty() ? kUnknown : numa.node.cpus) + "  " + node::format_bytes(numa.node.memory_bytes) +
              '\n';
    }
    for (const GpuSeat &gpu : numa.gpus) {
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
  const std::vector<NumaSeat> seats = seat(node, numa_nodes, view);
  if (!print(options.svg ? topology_svg(view.host, seats) : text_of(view.host, seats))) return kRefused;
  return complain_about(view.troubles);
}

}  // namespace vgpu::ctl
