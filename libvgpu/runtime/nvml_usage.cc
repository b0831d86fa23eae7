#include "nvml_usage.h"

#include "host_pid.h"
#include "nvml_client.h"

namespace vgpu::runtime {

Measured measure_memory(unsigned dev, std::uint64_t *bytes) {
  const unsigned self = nvml_pid();
  NvmlProcesses processes;
  if (self == 0 || !list_processes(dev, &processes)) return Measured::unknown;
  const nvmlProcessInfo_v1_t *ours = processes.find(self);
  if (ours == nullptr) return Measured::absent;
  *bytes = ours->usedGpuMemory;
  return *bytes == static_cast<std::uint64_t>(NVML_VALUE_NOT_AVAILABLE) ? Measured::unknown : Measured::yes;
}

}  // namespace vgpu::runtime
