#include "devices.h"

#include <algorithm>
#include <cstdlib>

#include "node/admission.h"
#include "node/contexts_file.h"
#include "node/directory.h"
#include "node/install.h"
#include "node/probe.h"

namespace vgpu::run {

namespace {

Error look_up(node::Node *node) {
  node::ProbeOptions probe;
  probe.program = node::find_probe();
  if (Error error = probe_devices(probe, node)) return error;
  if (!node->devices.empty()) return {};
  return make_error(Fault::not_found, "there is no GPU on this machine%s%s; see what nvidia-smi says",
                    node->problems.empty() ? "" : ": ", node->problems.empty() ? "" : node->problems[0].c_str());
}

// What root knows of contexts, for the same GPU and driver. The region is the user's own: so may the list of GPUs be.
void add_contexts(node::Node *node) {
  const char *given = std::getenv("VGPU_REGION_DIR");
  const node::RegionDirectory directory(given != nullptr ? given : region::kRegionDirectory);
  std::vector<node::KnownContext> known;
  if (!read_contexts(node::kContextsFile, region::Trust::root, &known)) add_known_contexts(known, node);
  node::Node kept;
  if (read_node(directory.node_file(), region::Trust::root_or_self, &kept) || kept.driver != node->driver) return;
  for (node::NodeDevice &device : node->devices) {
    for (const node::NodeDevice &same : kept.devices) {
      if (same.context.bytes == 0 || same.identity.uuid != std::string_view(device.identity.uuid)) continue;
      device.context = same.context;
      device.usable_bytes = same.usable_bytes;
      device.block_bytes = same.block_bytes;
    }
  }
}

Error choose(const std::vector<unsigned> &places, std::vector<node::NodeDevice> *devices) {
  if (places.empty()) return {};
  std::vector<node::NodeDevice> chosen;
  for (auto place = places.begin(); place != places.end(); ++place) {
    if (*place >= devices->size()) {
      return make_error(Fault::invalid, "--gpus: there is no GPU %u: the first is 0, the last %zu", *place,
                        devices->size() - 1);
    }
    if (std::find(places.begin(), place, *place) != place) {
      return make_error(Fault::invalid, "--gpus: GPU %u is there twice; name each once", *place);
    }
    chosen.push_back((*devices)[*place]);
  }
  *devices = std::move(chosen);
  return {};
}

}  // namespace

Error find_devices(const Options &options, std::vector<region::DeviceSpec> *devices) {
  node::Node node;
  if (Error error = look_up(&node)) return error;
  if (Error error = choose(options.gpus, &node.devices)) return error;
  add_contexts(&node);
  if (options.memory) {
    if (Error error = options.memory->check_gpus("--gpu-mem", static_cast<unsigned>(node.devices.size()))) return error;
  }
  for (const node::NodeDevice &found : node.devices) {
    region::DeviceSpec device;
    device.identity = found.identity;
    device.context = found.context;
    if (options.context != 0) device.context = {options.context, region::ContextSource::site};
    device.usable_bytes = found.usable_bytes;
    device.block_bytes = found.block_bytes;
    device.memory_limit = node::usable_memory(device);
    if (options.memory) {
      std::uint64_t asked = 0;
      const auto index = static_cast<unsigned>(devices->size());
      if (Error error = options.memory->resolve("--gpu-mem", index, device.memory_limit, &asked)) return error;
      device.memory_limit = std::min(asked, device.memory_limit);
    }
    device.sm_percent = options.sm_percent.value_or(100);
    devices->push_back(device);
  }
  return {};
}

std::string uuid_list(const std::vector<region::DeviceSpec> &devices) {
  std::string list;
  for (const region::DeviceSpec &device : devices)
    list += (list.empty() ? "" : ",") + std::string(device.identity.uuid);
  return list;
}

}  // namespace vgpu::run
