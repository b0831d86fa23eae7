// Calls of the library's own exports that go through the dynamic linker: that of the 535 series has some, and whoever
// has put functions of his own in front of these gets the calls.
#pragma once

#include <nvml.h>

#define SIMGPU_NVML_EXPORTED(row)        \
  row(nvmlInit_v2);                      \
  row(nvmlInitWithFlags);                \
  row(nvmlDeviceGetCount_v2);            \
  row(nvmlDeviceGetFanSpeed);            \
  row(nvmlDeviceGetHandleByIndex_v2);    \
  row(nvmlDeviceGetHandleByPciBusId_v2); \
  row(nvmlSystemGetCudaDriverVersion)

namespace simgpu::exported {

#define SIMGPU_NVML_ROW(name) extern decltype(&::name) const name
SIMGPU_NVML_EXPORTED(SIMGPU_NVML_ROW);
#undef SIMGPU_NVML_ROW

}  // namespace simgpu::exported
