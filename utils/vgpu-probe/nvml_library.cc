#include "nvml_library.h"

#include <dlfcn.h>

#include "node/node.h"

namespace vgpu::probe {

namespace {

template <typename Function>
void find(void *library, const char *name, Function *function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
}

Error load(const std::string &library, nvml::Calls *calls) {
  void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return make_error(Fault::not_found, "NVML cannot be loaded: %s; install the NVIDIA driver on this node", dlerror());
  }
  find(handle, "nvmlInit_v2", &calls->init);
  find(handle, "nvmlErrorString", &calls->error_string);
  find(handle, "nvmlDeviceGetCount_v2", &calls->device_count);
  find(handle, "nvmlDeviceGetHandleByIndex_v2", &calls->device_by_index);
  find(handle, "nvmlDeviceGetUUID", &calls->uuid);
  find(handle, "nvmlDeviceGetMinorNumber", &calls->minor_number);
  find(handle, "nvmlDeviceGetPciInfo_v3", &calls->pci_info);
  find(handle, "nvmlDeviceGetMemoryInfo", &calls->memory_info);
  if (calls->init == nullptr || calls->error_string == nullptr || calls->device_count == nullptr ||
      calls->device_by_index == nullptr || calls->uuid == nullptr || calls->minor_number == nullptr ||
      calls->pci_info == nullptr || calls->memory_info == nullptr) {
    return make_error(Fault::foreign, "%s is no NVML library, or one from before driver R390; update the driver",
                      library.c_str());
  }
  find(handle, "nvmlDeviceGetMigMode", &calls->mig_mode);
  find(handle, "nvmlDeviceGetMaxMigDeviceCount", &calls->max_mig_devices);
  find(handle, "nvmlDeviceGetMigDeviceHandleByIndex", &calls->mig_device_by_index);
  find(handle, "nvmlDeviceGetGpuInstanceId", &calls->gpu_instance_id);
  find(handle, "nvmlDeviceGetComputeInstanceId", &calls->compute_instance_id);
  find(handle, "nvmlDeviceGetComputeRunningProcesses_v2", &calls->compute_processes);
  find(handle, "nvmlDeviceGetGraphicsRunningProcesses_v2", &calls->graphics_processes);
  find(handle, "nvmlDeviceGetHandleByUUID", &calls->device_by_uuid);
  find(handle, "nvmlDeviceGetComputeMode", &calls->compute_mode);
  find(handle, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &calls->gpu_of_mig_device);
  find(handle, "nvmlDeviceGetMemoryInfo_v2", &calls->memory_info_2);
  find(handle, "nvmlSystemGetDriverVersion", &calls->driver_version);
  find(handle, "nvmlDeviceGetProcessUtilization", &calls->utilization);
  return {};
}

}  // namespace

Error start_nvml(const std::string &library, nvml::Calls *calls) {
  if (Error error = load(library, calls)) return error;
  if (const nvml::Result result = calls->init(); result != nvml::kSuccess) {
    return make_error(Fault::system, "NVML does not start: %s; see what nvidia-smi says on this node",
                      calls->error_string(result));
  }
  return {};
}

std::string driver_version(const nvml::Calls &calls) {
  char text[nvml::kDriverVersionSize] = "";
  if (calls.driver_version == nullptr || calls.driver_version(text, sizeof text) != nvml::kSuccess) return "";
  text[sizeof text - 1] = '\0';
  return node::is_driver_version(text) ? text : "";
}

bool list_processes(ListCall call, nvml::Device device, std::vector<nvml::Process> *processes) {
  std::vector<nvml::Process> found(64);
  unsigned count = 0;
  nvml::Result result = nvml::kInsufficientSize;
  // More may come while we make room for those that are there.
  for (int attempt = 0; result == nvml::kInsufficientSize && attempt < 8; ++attempt) {
    if (attempt > 0) found.resize(2 * std::size_t{count} + 64);
    count = static_cast<unsigned>(found.size());
    result = call(device, &count, found.data());
  }
  if (result != nvml::kSuccess || count > found.size()) return false;
  found.resize(count);
  *processes = std::move(found);
  return true;
}

}  // namespace vgpu::probe
