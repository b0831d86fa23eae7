// Which GPUs and MIG instances NVML knows.
#pragma once

#include <string>
#include <vector>

#include "node/node.h"
#include "node/processes.h"
#include "nvml_calls.h"

namespace vgpu::probe {

// Adds to `node`. A GPU that cannot be asked becomes a problem, and the others are still there.
Error probe_nvml(const std::string &library, node::Node *node);

// Who holds memory on them, again and again: starting NVML takes longer than asking it.
class ProcessLister {
 public:
  Error open(const std::string &library);
  // In the form of processes.h. A GPU that cannot be asked has none.
  Error list(std::string *text);

 private:
  nvml::Calls calls_ = {};
  std::vector<std::string> uuids_;
  unsigned lists_ = 0;
};

// The device file that opens a MIG instance to a process, as the driver's `capabilities` directory (in /proc) tells it;
// empty if it does not.
std::string mig_device_file(const std::string &capabilities, int gpu_minor, unsigned gpu_instance,
                            unsigned compute_instance);

}  // namespace vgpu::probe
