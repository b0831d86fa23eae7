#include "nvml_usage.h"

#include "host_pid.h"
#include "nvml_client.h"

namespace vgpu::runtime {

NvmlUsage query_nvml_usage(unsigned dev, std::uint64_t held, std::uint64_t *bytes) {
  NvmlProcesses processes;
  if (!list_processes(dev, &processes)) return NvmlUsage::unknown;
  const unsigned self = pid_in(dev, processes, held);
  if (self == 0) return NvmlUsage::unknown;
  if (!processes.find(self, bytes)) return NvmlUsage::not_listed;
  return *bytes == 0 || *bytes == NvmlProcesses::kBytesUnknown ? NvmlUsage::not_told : NvmlUsage::known;
}

}  // namespace vgpu::runtime
