// node/ is what the plugin and the tools know of a node: its GPUs, its directory of regions, the site's configuration,
// limits as people type them, what is kept of jobs. Never part of libvgpu.so, so it may use all of C++.
//
// Here: what GPUs this node has, as the probe found them, and the file in which that is kept for everybody
// (<directory of regions>/node).
//
//   vgpu-node 2
//   on-error closed
//   driver 580.95.05
//   device gres=0 minor=0 file=/dev/nvidia0 gpu=GPU-... uuid=GPU-... pci=0000:0b:00.0 memory=85520809984 numa=0 cpus=0-31
//     context=457179136 context-from=measured usable=84557168640 block=2097152      (on the same line)
//   problem NVML cannot tell about GPU 1: GPU is lost
//   end 1
//
// The first two lines keep their place in every version, for readers that want only the site's choice. `-` stands for
// what is not known. `end` counts the devices: a file without it is cut off. Version 1 has no driver and ends its devices
// with cpus; it is still read, and still written where nothing more is known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "region/layout.h"
#include "region/region.h"

namespace vgpu::node {

inline constexpr unsigned kNodeVersion = 2;

// A GPU, or one MIG instance of one.
struct NodeDevice {
  int gres_index = -1;      // Slurm's number of it; -1: nobody said
  int minor = -1;           // of /dev/nvidiaN; a MIG instance has its GPU's
  std::string device_file;  // /dev/nvidiaN; of a MIG instance, that of its capability. Empty: unknown
  std::string gpu_uuid;     // "GPU-...", also of a MIG instance's GPU
  // uuid: what CUDA calls the device, "GPU-..." or "MIG-...". pci_bus_id: as Linux writes it, "0000:0b:00.0".
  region::DeviceIdentity identity = {};
  region::ContextFigure context;   // measured by root, or the site's
  std::uint64_t usable_bytes = 0;  // memory without the driver's reserve; 0: not known
  std::uint64_t block_bytes = 0;   // what the driver takes memory in; 0: not known

  bool is_mig() const { return std::string_view(identity.uuid).substr(0, 4) == "MIG-"; }
};

struct Node {
  bool fail_open = false;  // the site's choice: a job whose region cannot be had runs without limits
  std::string driver;      // its version, as NVML says it; empty: not known
  std::vector<NodeDevice> devices;
  std::vector<std::string> problems;  // devices that are there and cannot be used, in a sentence each
};

// False, and nothing is changed, when `text` does not fit.
template <std::size_t Size>
bool assign(char (&field)[Size], std::string_view text) {
  if (text.size() >= Size) return false;
  for (std::size_t i = 0; i < Size; ++i) field[i] = i < text.size() ? text[i] : '\0';
  return true;
}

// "580.95.05", and nothing that could upset a file or a terminal.
bool is_driver_version(std::string_view text);

// As the node file and people spell it: "measured", "site", or "-".
const char *name_of(region::ContextSource source);

std::string format_node(const Node &node);
// Believes nothing that was not checked. `where` is named in the error.
Error parse_node(const std::string &where, std::string_view text, Node *node);

// In one step: readers see the old file or the new one. Refuses what parse_node() would refuse.
Error write_node(const std::string &path, const Node &node);
Error read_node(const std::string &path, region::Trust trust, Node *node);

}  // namespace vgpu::node
