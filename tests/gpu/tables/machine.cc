// The device and its driver. Nothing that names this machine: no UUID, no serial number, no address on the bus.
#include <cstdio>

#include "tables.h"

namespace tables {

namespace {

template <typename Value>
std::string asked(const char *name, Value *value, std::string (*text)(Value)) {
  const nvmlReturn_t result = nvml(name, nvml_device(), value);
  return result == NVML_SUCCESS ? text(*value) : name_of(result);
}

std::string on_or_off(nvmlEnableState_t state) { return state == NVML_FEATURE_ENABLED ? "on" : "off"; }

std::string mode_name(nvmlComputeMode_t mode) {
  switch (mode) {
    case NVML_COMPUTEMODE_DEFAULT:
      return "default";
    case NVML_COMPUTEMODE_PROHIBITED:
      return "prohibited";
    case NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
      return "exclusive process";
    default:
      return format("%d", mode);
  }
}

std::string mig() {
  unsigned now = 0, pending = 0;
  const nvmlReturn_t result = nvml("nvmlDeviceGetMigMode", nvml_device(), &now, &pending);
  return result == NVML_SUCCESS ? (now != 0 ? "on" : "off") : name_of(result);
}

int attribute(CUdevice_attribute which) {
  int value = 0;
  CU(cuDeviceGetAttribute)(&value, which, device());
  return value;
}

void line(const char *what, const std::string &value) { std::printf("%-22s %s\n", what, value.c_str()); }

}  // namespace

int machine() {
  char name[128] = "", driver[128] = "?";
  int version = 0, count = 0;
  size_t total = 0;
  nvmlMemory_t memory{};
  check(CU(cuDeviceGetName)(name, sizeof name, device()), "cuDeviceGetName");
  CU(cuDriverGetVersion)(&version);
  CU(cuDeviceGetCount)(&count);
  CU(cuDeviceTotalMem_v2)(&total, device());
  nvml("nvmlSystemGetDriverVersion", static_cast<char *>(driver), static_cast<unsigned>(sizeof driver));
  nvml("nvmlDeviceGetMemoryInfo", nvml_device(), &memory);
  const std::string cuda = format("%d.%d", version / 1000, version % 1000 / 10);

  line("GPU", format("%s, the first of %d", name, count));
  line("SMs, compute", format("%d, %d.%d", attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                              attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                              attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)));
  line("driver", driver);
  line("CUDA of the driver", cuda);
  line("memory, NVML", mib(memory.total) + " MiB, of which used before anything ran: " + mib(memory.used) + " MiB");
  line("memory, CUDA", mib(total) + " MiB");
  nvmlComputeMode_t mode{};
  nvmlEnableState_t state{};
  line("compute mode", asked("nvmlDeviceGetComputeMode", &mode, mode_name));
  line("MIG", mig());
  line("persistence mode", asked("nvmlDeviceGetPersistenceMode", &state, on_or_off));
  line("accounting mode", asked("nvmlDeviceGetAccountingMode", &state, on_or_off));
  nvmlEnableState_t ecc{}, pending{};
  const nvmlReturn_t result = nvml("nvmlDeviceGetEccMode", nvml_device(), &ecc, &pending);
  line("ECC", result == NVML_SUCCESS ? on_or_off(ecc) : name_of(result));
  std::vector<ListedProcess> processes;
  line("processes on it", listed_processes(&processes) ? std::to_string(processes.size()) : "not known");
  conclude(format("%s, driver %s, CUDA %s", name, driver, cuda.c_str()));
  return 0;
}

}  // namespace tables
