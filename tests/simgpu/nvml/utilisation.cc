#include "nvml/utilisation.h"

#include <time.h>

#include <algorithm>
#include <fstream>

#include "nvml/newer.h"

using namespace simgpu;

namespace simgpu {

std::vector<Utilisation> utilisation_of(Session *session, DeviceState *state) {
  std::vector<Utilisation> out;
  const std::vector<VisibleProcess> processes = visible_processes(session, state);
  std::ifstream file(node_directory() + "/utilisation");
  unsigned device, pid, sm, memory, encoder, decoder;
  while (file >> device >> pid >> sm >> memory >> encoder >> decoder) {
    if (device != state->index || sm + memory + encoder + decoder == 0) continue;
    for (const VisibleProcess &process : processes)
      if (process.host_pid == pid) out.push_back({process, sm, memory, encoder, decoder});
  }
  return out;
}

unsigned long long wall_clock_us() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1000000u + static_cast<unsigned long long>(now.tv_nsec) / 1000u;
}

}  // namespace simgpu

namespace {

constexpr unsigned kPeriodUs = 167000;

unsigned total(Session *session, DeviceState *state, unsigned Utilisation::*part) {
  unsigned sum = 0;
  for (const Utilisation &row : utilisation_of(session, state)) sum += row.*part;
  return std::min(sum, 100u);
}

nvmlReturn_t engine(nvmlDevice_t device, unsigned Utilisation::*part, unsigned *percent, unsigned *period_us) {
  NVML_DEVICE(session, state, device);
  if (percent == nullptr || period_us == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *percent = total(session, state, part);
  *period_us = kPeriodUs;
  return NVML_SUCCESS;
}

// Samples are always of now: whoever has seen later ones gets none.
nvmlReturn_t samples_since(Session *session, DeviceState *state, unsigned long long last_seen, unsigned *count,
                           const void *out, std::vector<Utilisation> *samples) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (last_seen < wall_clock_us()) *samples = utilisation_of(session, state);
  if (out == nullptr) *count = 0;  // asks how many
  nvmlReturn_t result;
  if (!has_room(static_cast<unsigned>(samples->size()), count, out, &result)) return result;
  return samples->empty() ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
  NVML_DEVICE(session, state, device);
  if (rates == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *rates = {total(session, state, &Utilisation::sm), total(session, state, &Utilisation::memory)};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us) {
  return engine(device, &Utilisation::encoder, percent, period_us);
}
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us) {
  return engine(device, &Utilisation::decoder, percent, period_us);
}

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info) {
  NVML_DEVICE(session, state, device);
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *info = {};
  info->utilization[NVML_GPU_UTILIZATION_DOMAIN_GPU] = {1, total(session, state, &Utilisation::sm), 0, 0};
  info->utilization[NVML_GPU_UTILIZATION_DOMAIN_FB] = {1, total(session, state, &Utilisation::memory), 0, 0};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
                                             unsigned int *count, unsigned long long last_seen) {
  NVML_DEVICE(session, state, device);
  std::vector<Utilisation> samples;
  nvmlReturn_t result = samples_since(session, state, last_seen, count, out, &samples);
  if (result != NVML_SUCCESS) return result;
  for (const Utilisation &row : samples)
    *out++ = {row.process.pid, wall_clock_us(), row.sm, row.memory, row.encoder, row.decoder};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info) {
  NVML_DEVICE(session, state, device);
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  std::vector<Utilisation> samples;
  nvmlReturn_t result =
      samples_since(session, state, info->lastSeenTimeStamp, &info->processSamplesCount, info->procUtilArray, &samples);
  if (result != NVML_SUCCESS) return result;
  nvmlProcessUtilizationInfo_v1_t *out = info->procUtilArray;
  for (const Utilisation &row : samples)
    *out++ = {wall_clock_us(), row.process.pid, row.sm, row.memory, row.encoder, row.decoder, 0, 0};
  return NVML_SUCCESS;
}

// One sample, of now. What the sensors do not know by time is not sampled.
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long last_seen,
                                  nvmlValueType_t *value_type, unsigned int *count, nvmlSample_t *samples) {
  NVML_DEVICE(session, state, device);
  if (count == nullptr || value_type == nullptr || (samples != nullptr && *count == 0))
    return NVML_ERROR_INVALID_ARGUMENT;
  unsigned Utilisation::*part = nullptr;
  if (type == NVML_GPU_UTILIZATION_SAMPLES) part = &Utilisation::sm;
  if (type == NVML_MEMORY_UTILIZATION_SAMPLES) part = &Utilisation::memory;
  if (type == NVML_ENC_UTILIZATION_SAMPLES) part = &Utilisation::encoder;
  if (type == NVML_DEC_UTILIZATION_SAMPLES) part = &Utilisation::decoder;
  if (part == nullptr) return NVML_ERROR_NOT_SUPPORTED;
  const unsigned long long now = wall_clock_us();
  if (last_seen >= now) return NVML_ERROR_NOT_FOUND;
  *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
  *count = 1;
  if (samples == nullptr) return NVML_SUCCESS;
  samples[0].timeStamp = now;
  samples[0].sampleValue.uiVal = total(session, state, part);
  return NVML_SUCCESS;
}

}  // extern "C"
