#include "nvml_client.h"

#include <dlfcn.h>

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

const nvmlProcessInfo_v1_t *NvmlProcesses::find(unsigned pid) const {
  for (unsigned i = 0; i < count; ++i) {
    if (entries[i].pid == pid) return &entries[i];
  }
  return nullptr;
}

bool list_processes(unsigned dev, NvmlProcesses *processes) {
  const driver::NvmlCall call;
  const nvmlDevice_t handle = handle_of(dev);
  if (handle == nullptr) return false;
  // The first version of the list: later ones write structures whose size is not what the headers say.
  processes->count = NvmlProcesses::kMost;
  return REAL(nvmlDeviceGetComputeRunningProcesses)(handle, &processes->count, processes->entries) == NVML_SUCCESS;
}

bool list_utilisation(unsigned dev, unsigned long long since_us, NvmlSamples *samples) {
  const driver::NvmlCall call;
  const nvmlDevice_t handle = handle_of(dev);
  if (handle == nullptr) return false;
  samples->count = NvmlSamples::kMost;
  return REAL(nvmlDeviceGetProcessUtilization)(handle, samples->entries, &samples->count, since_us) == NVML_SUCCESS;
}

}  // namespace vgpu::runtime
