// Which GPUs and MIG instances NVML knows.
#pragma once

#include <string>

#include "node/node.h"
#include "node/processes.h"

namespace vgpu::probe {

// Adds to `node`. A GPU that cannot be asked becomes a problem, and the others are still there.
Error probe_nvml(const std::string &library, node::Node *node);

// Who holds memory on them. A GPU that cannot be asked has none.
Error probe_processes(const std::string &library, std::vector<node::GpuProcess> *processes);

// The device file that opens a MIG instance to a process, as the driver's `capabilities` directory (in /proc) tells it;
// empty if it does not.
std::string mig_device_file(const std::string &capabilities, int gpu_minor, unsigned gpu_instance,
                            unsigned compute_instance);

}  // namespace vgpu::probe
