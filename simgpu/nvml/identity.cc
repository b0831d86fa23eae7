// Which devices there are and how they are called.
#include <cstdio>
#include <cstring>

#include "simgpu/node/config.h"
#include "simgpu/nvml/exported.h"
#include "simgpu/nvml/level.h"
#include "simgpu/nvml/session.h"

using namespace simgpu;

namespace {

nvmlReturn_t copy_text(const std::string &text, char *out, unsigned length) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(out, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

// The three generations of the PCI description differ in how far they write.
void fill_pci(const DeviceFacts &facts, int generation, nvmlPciInfo_t *pci) {
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", facts.pci_domain & 0xffff, facts.pci_bus,
           facts.pci_device);
  pci->domain = facts.pci_domain;
  pci->bus = facts.pci_bus;
  pci->device = facts.pci_device;
  pci->pciDeviceId = 0x20f110de;
  if (generation >= 2) pci->pciSubSystemId = 0x145f10de;
  if (generation >= 3)
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", facts.pci_domain, facts.pci_bus, facts.pci_device);
}

template <typename Match>
nvmlReturn_t find(nvmlDevice_t *out, Match match) {
  Session *session = Session::current();
  if (session == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < session->device_count(); i++) {
    DeviceState *state = session->device(i);
    if (!match(state->facts)) continue;
    if (state->broken.load() != 0) return NVML_ERROR_GPU_IS_LOST;
    *out = to_handle(state);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
  Session *session = Session::current();
  if (session == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = session->device_count();
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return exported::nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out) {
  Session *session = Session::current();
  if (session == nullptr) return NVML_ERROR_UNINITIALIZED;
  DeviceState *state = session->device(index);
  if (out == nullptr || state == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (state->broken.load() != 0) return NVML_ERROR_GPU_IS_LOST;
  *out = to_handle(state);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *out) {
  return exported::nvmlDeviceGetHandleByIndex_v2(index, out);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
  if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return find(out, [uuid](const DeviceFacts &facts) { return format_uuid(facts.uuid) == uuid; });
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out) {
  if (serial == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return find(out, [serial](const DeviceFacts &facts) { return strcmp(facts.serial, serial) == 0; });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *out) {
  if (text == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned domain = 0, bus = 0, device = 0;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (sscanf(text, "%x:%x", &bus, &device) != 2) return NVML_ERROR_INVALID_ARGUMENT;
  }
  return find(out, [=](const DeviceFacts &facts) {
    return facts.pci_domain == domain && facts.pci_bus == bus && facts.pci_device == device;
  });
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *out) {
  return exported::nvmlDeviceGetHandleByPciBusId_v2(text, out);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
  NVML_DEVICE(session, state, device);
  if (index == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *index = state->index;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
  NVML_DEVICE(session, state, device);
  if (minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *minor = state->facts.minor;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
  NVML_DEVICE(session, state, device);
  return copy_text(state->facts.name, name, length);
}
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length) {
  NVML_DEVICE(session, state, device);
  return copy_text(state->facts.serial, serial, length);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
  NVML_DEVICE(session, state, device);
  return copy_text(format_uuid(state->facts.uuid), uuid, length);
}
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand) {
  NVML_DEVICE(session, state, device);
  if (brand == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *brand = NVML_BRAND_NVIDIA;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  NVML_DEVICE(session, state, device);
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  fill_pci(state->facts, 1, pci);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  NVML_DEVICE(session, state, device);
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  fill_pci(state->facts, 2, pci);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  NVML_DEVICE(session, state, device);
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  fill_pci(state->facts, 3, pci);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  NVML_DEVICE(session, state, device);
  if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *major = static_cast<int>(state->facts.compute_major);
  *minor = static_cast<int>(state->facts.compute_minor);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores) {
  NVML_DEVICE(session, state, device);
  if (cores == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *cores = state->facts.sm_count * 64;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
  NVML_DEVICE(session, state, device);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
  NVML_DEVICE(session, state, device);
  if (is_mig == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *is_mig = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
  if (Session::current() == nullptr) return NVML_ERROR_UNINITIALIZED;
  return copy_text(kNvmlDriverVersion, version, length);
}
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
  if (Session::current() == nullptr) return NVML_ERROR_UNINITIALIZED;
  return copy_text(std::string(kCudaVersion >= 13000 ? "13." : "12.") + kNvmlDriverVersion, version, length);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = kCudaVersion;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
  return exported::nvmlSystemGetCudaDriverVersion(version);
}

}  // extern "C"
