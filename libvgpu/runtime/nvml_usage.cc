#include "nvml_usage.h"

#include "host_pid.h"
#include "nvml_client.h"

namespace vgpu::runtime {

NvmlUsage query_nvml_usage(unsigned dev, std::uint64_t *bytes) {
  const unsigned self = nvml_pid();
  NvmlProcesses processes;
  if (self == 0 || !list_processes(dev, &processes)) return NvmlUsage::unknown;
  const nvmlProcessInfo_v1_t *ours = processes.find(self);
  if (ours == nullptr) return NvmlUsage::not_listed;
  *bytes = ours->usedGpuMemory;
  return *bytes == static_cast<std::uint64_t>(NVML_VALUE_NOT_AVAILABLE) ? NvmlUsage::unknown : NvmlUsage::known;
}

}  // namespace vgpu::runtime
