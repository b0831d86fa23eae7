#include "simgpu/nvml/utilisation.h"

#include <algorithm>

#include "simgpu/nvml/newer.h"

using namespace simgpu;

namespace {

constexpr unsigned kPeriodUs = kWindowNs / 1000;

nvmlReturn_t engine(nvmlDevice_t device, unsigned Utilisation::*part, unsigned *percent, unsigned *period_us) {
  NVML_DEVICE(session, state, device);
  if (percent == nullptr || period_us == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *percent = percent_of(session, state, part);
  *period_us = kPeriodUs;
  return NVML_SUCCESS;
}

// Whoever has seen later ones gets none.
nvmlReturn_t samples_since(Session *session, DeviceState *state, unsigned long long last_seen, unsigned *count,
                           const void *out, std::vector<Utilisation> *samples) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *samples = utilisation_of(session, state, last_seen);
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
  *rates = {percent_of(session, state, &Utilisation::sm), percent_of(session, state, &Utilisation::memory)};
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
  info->utilization[NVML_GPU_UTILIZATION_DOMAIN_GPU] = {1, percent_of(session, state, &Utilisation::sm), 0, 0};
  info->utilization[NVML_GPU_UTILIZATION_DOMAIN_FB] = {1, percent_of(session, state, &Utilisation::memory), 0, 0};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
                                             unsigned int *count, unsigned long long last_seen) {
  NVML_DEVICE(session, state, device);
  std::vector<Utilisation> samples;
  nvmlReturn_t result = samples_since(session, state, last_seen, count, out, &samples);
  if (result != NVML_SUCCESS) return result;
  for (const Utilisation &row : samples)
    *out++ = {row.process.pid, row.time_us, row.sm, row.memory, row.encoder, row.decoder};
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
    *out++ = {row.time_us, row.process.pid, row.sm, row.memory, row.encoder, row.decoder, 0, 0};
  return NVML_SUCCESS;
}

// What the sensors do not know by time is not sampled.
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
  const std::vector<Sample> found = samples_of(session, state, part, last_seen);
  if (found.empty()) return NVML_ERROR_NOT_FOUND;
  *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
  const auto available = static_cast<unsigned>(found.size());
  *count = samples != nullptr ? std::min(*count, available) : available;
  // The newest, when there is not room for all.
  for (unsigned i = 0; samples != nullptr && i < *count; i++) {
    samples[i].timeStamp = found[available - *count + i].time_us;
    samples[i].sampleValue.uiVal = found[available - *count + i].percent;
  }
  return NVML_SUCCESS;
}

}  // extern "C"
