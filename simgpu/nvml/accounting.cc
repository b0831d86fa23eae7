// Accounting of processes that are there: the node keeps no record of those that have ended, and no peaks.
#include "simgpu/nvml/utilisation.h"

using namespace simgpu;

extern "C" {

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
  NVML_DEVICE(session, state, device);
  if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *mode = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *size) {
  NVML_DEVICE(session, state, device);
  if (size == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *size = kMaxProcesses;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids) {
  NVML_DEVICE(session, state, device);
  const std::vector<VisibleProcess> processes = visible_processes(session, state);
  nvmlReturn_t result;
  if (!has_room(static_cast<unsigned>(processes.size()), count, pids, &result)) return result;
  for (const VisibleProcess &process : processes) *pids++ = process.pid;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats) {
  NVML_DEVICE(session, state, device);
  if (stats == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (const VisibleProcess &process : visible_processes(session, state)) {
    if (process.pid != pid) continue;
    *stats = {};
    stats->maxMemoryUsage = process.bytes;
    stats->startTime = wall_clock_us() - (monotonic_now_ns() - process.connected_ns) / 1000;
    stats->isRunning = 1;
    for (const Utilisation &row : utilisation_of(session, state)) {
      if (row.process.pid != pid) continue;
      stats->gpuUtilization = row.sm;
      stats->memoryUtilization = row.memory;
    }
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // extern "C"
