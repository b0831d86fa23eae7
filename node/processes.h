// Which processes hold memory of this node's GPUs, as NVML tells vgpu-probe.
//
//   vgpu-processes 3
//   device GPU-... 316669952
//   process GPU-... 4711 314572800 37
//   process GPU-... 4712 1048576 -
//   end 2
//
// The last number of a process is the share of the SMs in percent, `-` where NVML does not know it. A device has the memory
// that is in use there, without what the driver reserves for itself; devices of which NVML does not know it are left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "probe.h"

namespace vgpu::node {

struct GpuProcess {
  std::string uuid;  // of the GPU or MIG instance
  int pid = 0;       // as the node knows it
  std::uint64_t bytes = 0;
  int sm_percent = -1;  // of the last second or two; -1: not known

  bool operator==(const GpuProcess &) const = default;
};

using MemoryInUse = std::map<std::string, std::uint64_t>;  // bytes, by UUID

std::string format_processes(const std::vector<GpuProcess> &processes, const MemoryInUse &in_use = {});
Error parse_processes(const std::string &where, std::string_view text, std::vector<GpuProcess> *processes,
                      MemoryInUse *in_use = nullptr);

// In a child with a deadline, as probe_devices().
Error list_gpu_processes(const ProbeOptions &options, std::vector<GpuProcess> *processes);

}  // namespace vgpu::node
