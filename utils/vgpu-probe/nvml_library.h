// NVML, loaded at run time.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "nvml_calls.h"

namespace vgpu::probe {

Error start_nvml(const std::string &library, nvml::Calls *calls);

// Empty: it does not say, or nothing that can be kept.
std::string driver_version(const nvml::Calls &calls);

using ListCall = nvml::Result (*)(nvml::Device, unsigned *, nvml::Process *);
// False: NVML cannot tell.
bool list_processes(ListCall call, nvml::Device device, std::vector<nvml::Process> *processes);

}  // namespace vgpu::probe
