#include "nvml_client.h"

#include <dlfcn.h>

#include <cstring>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "driver/nvml_call.h"
#include "driver/resolve.h"
#include "runtime.h"
#include "utilisation_call.h"

namespace vgpu::runtime {

namespace {

enum class Usable : std::uint8_t { unknown, no, yes };

struct Client {
  Mutex mutex;
  Usable usable VGPU_GUARDED_BY(mutex);
  nvmlDevice_t handles[region::kMaxDevices] VGPU_GUARDED_BY(mutex);
  UtilisationCall utilisation_calls[region::kMaxDevices];
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

// Drivers fill up their arrays with entries of nobody, of no time, or with numbers that are no percentage.
template <typename Entry>
void copy_samples(const NvmlList &list, unsigned long long since_us, NvmlSamples *samples) {
  for (unsigned i = 0; i < list.count() && samples->count < NvmlSamples::kMost; ++i) {
    Entry entry;
    std::memcpy(&entry, list.entry(i), sizeof entry);
    if (entry.pid == 0 || entry.smUtil > 100 || entry.timeStamp <= since_us) continue;
    samples->entries[samples->count++] = {entry.pid, entry.smUtil, entry.timeStamp};
  }
}

// True: NVML answered, if only that it knows of nothing new.
template <typename Entry, typename Call>
bool fetch_samples(unsigned long long since_us, NvmlSamples *samples, Call call) {
  NvmlList list(kShape<Entry>);
  const nvmlReturn_t result =
      list.fetch([&](unsigned *count, void *entries) { return call(count, static_cast<Entry *>(entries)); });
  if (result == NVML_SUCCESS) copy_samples<Entry>(list, since_us, samples);
  return result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND;
}

bool ask_newer(nvmlDevice_t handle, unsigned long long since_us, NvmlSamples *samples) {
  const auto ask = [&](unsigned *count, nvmlProcessUtilizationInfo_v1_t *entries) {
    nvmlProcessesUtilizationInfo_t info = {nvmlProcessesUtilizationInfo_v1, *count, since_us, entries};
    const nvmlReturn_t result = REAL(nvmlDeviceGetProcessesUtilizationInfo)(handle, &info);
    *count = info.processSamplesCount;
    return result;
  };
  // How many there are, first: with nobody, as in every other tick, there is nothing to make room for.
  unsigned count = 0;
  const nvmlReturn_t result = ask(&count, nullptr);
  if (result == NVML_ERROR_NOT_FOUND || (result == NVML_SUCCESS && count == 0)) return true;
  if (result != NVML_ERROR_INSUFFICIENT_SIZE && result != NVML_SUCCESS) return false;
  return fetch_samples<nvmlProcessUtilizationInfo_v1_t>(since_us, samples, ask);
}

bool ask_older(nvmlDevice_t handle, unsigned long long since_us, NvmlSamples *samples) {
  return fetch_samples<nvmlProcessUtilizationSample_t>(
      since_us, samples, [&](unsigned *count, nvmlProcessUtilizationSample_t *entries) {
        return REAL(nvmlDeviceGetProcessUtilization)(handle, entries, count, since_us);
      });
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

UtilisationAnswer list_utilisation(unsigned dev, unsigned long long since_us, NvmlSamples *samples) {
  const driver::NvmlCall call;
  const nvmlDevice_t handle = handle_of(dev);
  if (handle == nullptr) return UtilisationAnswer::no_nvml;
  samples->count = 0;
  const bool answered = client.get()->utilisation_calls[dev].ask(monotonic_ns(), [&](UtilisationCall::Which which) {
    return which == UtilisationCall::newer ? ask_newer(handle, since_us, samples)
                                           : ask_older(handle, since_us, samples);
  });
  if (!answered) return UtilisationAnswer::unsupported;
  return samples->count != 0 ? UtilisationAnswer::samples : UtilisationAnswer::nothing_new;
}

}  // namespace vgpu::runtime
