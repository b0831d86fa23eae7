// How busy a device is: the job's part of it, where NVML says which process keeps it busy.
#include <time.h>

#include <algorithm>

#include "driver/table.h"
#include "runtime/filtered_list.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

using Part = unsigned nvmlProcessUtilizationSample_t::*;

// NVML averages a device over at most a second.
constexpr unsigned long long kSamplePeriodUs = 1'000'000;

unsigned long long now_us() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1'000'000 + static_cast<unsigned long long>(now.tv_nsec) / 1000;
}

// The job's part of `percent`, which is all of the device's; that itself, where NVML does not know who it was.
unsigned job_part(nvmlDevice_t device, Part part, unsigned percent) {
  FilteredList list(kShape<nvmlProcessUtilizationSample_t>);
  const nvmlReturn_t result = list.fetch([&](unsigned *count, void *samples) {
    return REAL(nvmlDeviceGetProcessUtilization)(device, static_cast<nvmlProcessUtilizationSample_t *>(samples), count,
                                                 now_us() - kSamplePeriodUs);
  });
  if (result != NVML_SUCCESS) return percent;
  unsigned own = 0;
  for (unsigned i = 0; i < list.count(); ++i) {
    own += std::min(static_cast<const nvmlProcessUtilizationSample_t *>(list.entry(i))->*part, 100u);
  }
  return std::min(own, percent);
}

bool is_to_be_scaled(const NvmlCall &call, nvmlReturn_t result) {
  return result == NVML_SUCCESS && call.is_the_programs() && mode() == Mode::active;
}

template <typename Call>
nvmlReturn_t engine_utilisation(nvmlDevice_t device, Part part, unsigned *percent, Call real) {
  const NvmlCall call;
  const nvmlReturn_t result = real();
  if (is_to_be_scaled(call, result)) *percent = job_part(device, part, *percent);
  return result;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long last_seen) {
  return list_job_processes(kSampled, count, samples, [&](unsigned *all, nvmlProcessUtilizationSample_t *entries) {
    return REAL(nvmlDeviceGetProcessUtilization)(device, entries, all, last_seen);
  });
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info) {
  if (info == nullptr || nvml_depth != 0 || mode() != Mode::active)
    return REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, info);
  if (info->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return list_job_processes(
      kSampled, &info->processSamplesCount, info->procUtilArray,
      [&](unsigned *all, nvmlProcessUtilizationInfo_v1_t *entries) {
        nvmlProcessesUtilizationInfo_t ours = {info->version, *all, info->lastSeenTimeStamp, entries};
        const nvmlReturn_t result = REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, &ours);
        *all = ours.processSamplesCount;
        return result;
      });
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
  return engine_utilisation(device, &nvmlProcessUtilizationSample_t::smUtil, rates != nullptr ? &rates->gpu : nullptr,
                            [&] { return REAL(nvmlDeviceGetUtilizationRates)(device, rates); });
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us) {
  return engine_utilisation(device, &nvmlProcessUtilizationSample_t::encUtil, percent,
                            [&] { return REAL(nvmlDeviceGetEncoderUtilization)(device, percent, period_us); });
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us) {
  return engine_utilisation(device, &nvmlProcessUtilizationSample_t::decUtil, percent,
                            [&] { return REAL(nvmlDeviceGetDecoderUtilization)(device, percent, period_us); });
}

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info) {
  const NvmlCall call;
  const nvmlReturn_t result = REAL(nvmlDeviceGetDynamicPstatesInfo)(device, info);
  if (!is_to_be_scaled(call, result)) return result;
  auto &gpu = info->utilization[NVML_GPU_UTILIZATION_DOMAIN_GPU];
  if (gpu.bIsPresent != 0) {
    gpu.percentage = job_part(device, &nvmlProcessUtilizationSample_t::smUtil, gpu.percentage);
  }
  return result;
}

}  // extern "C"
