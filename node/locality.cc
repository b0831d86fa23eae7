#include "locality.h"

#ifdef VGPU_HWLOC

#include <hwloc.h>

#include <cerrno>
#include <memory>

namespace vgpu::node {

namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Error load(const std::string &xml, Topology *topology) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return system_error("hwloc does not start");
  Topology made(raw);
  // hwloc's plugins would start OpenCL, CUDA and whatever else is there; all we want is the PCI tree.
  for (const char *name : {"cuda", "gl", "levelzero", "nvml", "opencl", "rsmi"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name);
  }
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (!xml.empty() && hwloc_topology_set_xml(raw, xml.c_str()) != 0) {
    return system_error("hwloc cannot read %s", xml.c_str());
  }
  if (hwloc_topology_load(raw) != 0) return system_error("hwloc cannot tell this node's topology");
  *topology = std::move(made);
  return {};
}

void locate(hwloc_topology_t topology, region::DeviceIdentity *identity) {
  const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, identity->pci_bus_id);
  if (device == nullptr) return;
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
  if (hwloc_bitmap_weight(near->nodeset) == 1) identity->numa_node = hwloc_bitmap_first(near->nodeset);
  // A list that does not fit is left out: half of it would be wrong.
  char list[sizeof identity->cpuset];
  const int length = hwloc_bitmap_list_snprintf(list, sizeof list, near->cpuset);
  if (length > 0) assign(identity->cpuset, static_cast<std::size_t>(length) < sizeof list ? list : "");
}

}  // namespace

Error find_localities(const std::string &xml, Node *node) {
  Topology topology;
  if (Error error = load(xml, &topology)) return error;
  for (NodeDevice &device : node->devices) locate(topology.get(), &device.identity);
  return {};
}

Error list_numa_nodes(const std::string &xml, std::vector<NumaNode> *nodes) {
  Topology topology;
  if (Error error = load(xml, &topology)) return error;
  std::vector<NumaNode> found;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    char cpus[1024] = "";
    hwloc_bitmap_list_snprintf(cpus, sizeof cpus, node->cpuset);
    found.push_back({static_cast<int>(node->os_index), cpus, node->attr->numanode.local_memory});
  }
  *nodes = std::move(found);
  return {};
}

}  // namespace vgpu::node

#else

namespace vgpu::node {

Error find_localities(const std::string &, Node *) { return {}; }

Error list_numa_nodes(const std::string &, std::vector<NumaNode> *) { return {}; }

}  // namespace vgpu::node

#endif
