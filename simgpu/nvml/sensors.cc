// Memory, and what a device's sensors say. Sensors are constant and plausible.
#include "simgpu/nvml/exported.h"
#include "simgpu/nvml/manners.h"
#include "simgpu/nvml/session.h"

using namespace simgpu;

namespace {

nvmlReturn_t give(unsigned *out, unsigned value) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

unsigned clock_of(const DeviceFacts &facts, nvmlClockType_t type) {
  return type == NVML_CLOCK_MEM ? facts.memory_clock_mhz : facts.clock_mhz;
}

}  // namespace

extern "C" {

// In the first version what the driver reserves counts as used; the second shows it apart, and in some drivers' figures
// it counts as used there, too.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  NVML_DEVICE(session, state, device);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  memory->total = state->facts.memory_bytes;
  memory->free = free_device_bytes(session, state);
  memory->used = memory->total - memory->free;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  NVML_DEVICE(session, state, device);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  memory->total = state->facts.memory_bytes;
  memory->reserved = state->facts.memory_bytes - state->block_count * kBlockBytes;
  memory->free = free_device_bytes(session, state);
  memory->used = memory->total - memory->free - (manners().used_has_reserved != 0 ? 0 : memory->reserved);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
  NVML_DEVICE(session, state, device);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  memory->bar1Total = state->facts.memory_bytes;
  memory->bar1Used = 2 << 20;
  memory->bar1Free = memory->bar1Total - memory->bar1Used;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) {
  NVML_DEVICE(session, state, device);
  return sensor == NVML_TEMPERATURE_GPU ? give(celsius, 40) : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t which,
                                               unsigned int *celsius) {
  NVML_DEVICE(session, state, device);
  return give(celsius, which == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN ? 95 : 90);
}
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent) {
  NVML_DEVICE(session, state, device);
  return give(percent, 30);
}
nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *percent) {
  return fan == 0 ? exported::nvmlDeviceGetFanSpeed(device, percent) : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *count) {
  NVML_DEVICE(session, state, device);
  return give(count, 1);
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatt) {
  NVML_DEVICE(session, state, device);
  return give(milliwatt, 60000);
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatt) {
  NVML_DEVICE(session, state, device);
  return give(milliwatt, 250000);
}
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatt) {
  NVML_DEVICE(session, state, device);
  return give(milliwatt, 250000);
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
  NVML_DEVICE(session, state, device);
  return give(mhz, clock_of(state->facts, type));
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
  NVML_DEVICE(session, state, device);
  return give(mhz, clock_of(state->facts, type));
}
nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits) {
  NVML_DEVICE(session, state, device);
  return give(bits, state->facts.bus_width);
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation) {
  NVML_DEVICE(session, state, device);
  return give(generation, 4);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation) {
  NVML_DEVICE(session, state, device);
  return give(generation, 4);
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *lanes) {
  NVML_DEVICE(session, state, device);
  return give(lanes, 16);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *lanes) {
  NVML_DEVICE(session, state, device);
  return give(lanes, 16);
}
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t, unsigned int *kilobytes) {
  NVML_DEVICE(session, state, device);
  return give(kilobytes, 0);
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int, nvmlEnableState_t *) {
  NVML_DEVICE(session, state, device);
  return NVML_ERROR_NOT_SUPPORTED;  // the simulated devices have no NVLink
}
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pstate) {
  NVML_DEVICE(session, state, device);
  if (pstate == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *pstate = NVML_PSTATE_0;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
  NVML_DEVICE(session, state, device);
  if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *mode = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
  NVML_DEVICE(session, state, device);
  if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *mode = NVML_COMPUTEMODE_DEFAULT;
  return NVML_SUCCESS;
}

}  // extern "C"
