#include "nvml_client.h"

#include <dlfcn.h>

#include <cstring>

#include "base/mutex.h"
#include "base/wiped.h"
#include "driver/nvml_call.h"
#include "driver/resolve.h"
#include "runtime.h"

namespace vgpu::runtime {

namespace {

enum class Usable : std::uint8_t { unknown, no, yes };

struct Client {
  Mutex mutex;
  Usable usable VGPU_GUARDED_BY(mutex);
  nvmlDevice_t handles[region::kMaxDevices] VGPU_GUARDED_BY(mutex);
};
constinit WipedOnFork<Client> client;

bool start(Client &state) VGPU_REQUIRES(state.mutex) {
  if (state.usable == Usable::unknown) {
    // RTLD_LOCAL, and never closed: the program's own use of NVML neither sees nor disturbs ours.
    const bool loaded = driver::loader_open("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
    state.usable = loaded && REAL(nvmlInit_v2)() == NVML_SUCCESS ? Usable::yes : Usable::no;
  }
  return state.usable == Usable::yes;
}

// Null: no NVML, or it does not know the device.
nvmlDevice_t handle_of(unsigned dev) {
  Client *state = client.get();
  if (state == nullptr) return nullptr;
  ScopedLock lock(state->mutex);
  if (!start(*state)) return nullptr;
  nvmlDevice_t &handle = state->handles[dev];
  const region::DeviceIdentity &identity = job_region().device(dev).identity;
  if (handle == nullptr && REAL(nvmlDeviceGetHandleByUUID)(identity.uuid, &handle) != NVML_SUCCESS &&
      REAL(nvmlDeviceGetHandleByPciBusId_v2)(identity.pci_bus_id, &handle) != NVML_SUCCESS) {
    handle = nullptr;
  }
  return handle;
}

}  // namespace

void open_nvml(unsigned dev) {
  const driver::NvmlCall call;
  handle_of(dev);
}

std::uint64_t NvmlProcesses::bytes(unsigned index) const {
  // At the same place in every version of the structure.
  unsigned long long bytes = 0;
  std::memcpy(&bytes, static_cast<const char *>(list_.entry(index)) + offsetof(nvmlProcessInfo_v1_t, usedGpuMemory),
              sizeof bytes);
  return bytes;
}

bool NvmlProcesses::find(unsigned pid, std::uint64_t *bytes) const {
  for (unsigned i = 0; i < count(); ++i) {
    if (list_.pid(i) != pid) continue;
    *bytes = this->bytes(i);
    return true;
  }
  return false;
}

bool list_processes(unsigned dev, NvmlProcesses *processes) {
  const driver::NvmlCall call;
  const nvmlDevice_t handle = handle_of(dev);
  if (handle == nullptr) return false;
  const auto fetch = [&](auto list) {
    return processes->list_.fetch([&](unsigned *count, void *entries) { return list(count, entries); }) == NVML_SUCCESS;
  };
  // The first version first: what it writes is the same in every driver. Not every driver has it, or has it everywhere.
  return fetch([&](unsigned *count, void *entries) {
           return REAL(nvmlDeviceGetComputeRunningProcesses)(handle, count,
                                                             static_cast<nvmlProcessInfo_v1_t *>(entries));
         }) ||
         fetch([&](unsigned *count, void *entries) {
           return REAL(nvmlDeviceGetComputeRunningProcesses_v3)(handle, count,
                                                                static_cast<nvmlProcessInfo_t *>(entries));
         }) ||
         fetch([&](unsigned *count, void *entries) {
           return REAL(nvmlDeviceGetComputeRunningProcesses_v2)(handle, count,
                                                                static_cast<nvmlProcessInfo_v2_t *>(entries));
         }) ||
         fetch([&](unsigned *count, void *entries) {
           return REAL(nvmlDeviceGetMPSComputeRunningProcesses_v3)(handle, count,
                                                                   static_cast<nvmlProcessInfo_t *>(entries));
         });
}

bool list_utilisation(unsigned dev, unsigned long long since_us, NvmlSamples *samples) {
  const driver::NvmlCall call;
  const nvmlDevice_t handle = handle_of(dev);
  if (handle == nullptr) return false;
  samples->count = NvmlSamples::kMost;
  return REAL(nvmlDeviceGetProcessUtilization)(handle, samples->entries, &samples->count, since_us) == NVML_SUCCESS;
}

}  // namespace vgpu::runtime
