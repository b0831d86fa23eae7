#include "devices.h"

#include <cctype>
#include <cstdio>
#include <cstring>

#include "base/wiped.h"
#include "driver/table.h"
#include "runtime.h"

namespace vgpu::runtime {

namespace {

// "GPU-", "MIG-" or nothing, then the digits, which alone count: CUDA gives a MIG device's UUID without saying so.
const char *digits_of(const char *uuid) {
  const bool has_prefix = strncasecmp(uuid, "GPU-", 4) == 0 || strncasecmp(uuid, "MIG-", 4) == 0;
  return has_prefix ? uuid + 4 : uuid;
}

// "0000:01:00.0" and "00000000:01:00.0" are the same place.
const char *significant_pci(const char *address) {
  while (*address == '0' && address[1] != ':') ++address;
  return address;
}

int find_device(const char *uuid, const char *pci) {
  for (unsigned dev = 0; dev < job_region().ndev(); ++dev) {
    const region::DeviceIdentity &identity = job_region().device(dev).identity;
    if (*uuid != '\0' && strcasecmp(digits_of(identity.uuid), digits_of(uuid)) == 0) return static_cast<int>(dev);
  }
  // By its place only where no UUID is known: the parts of a MIG device share one.
  for (unsigned dev = 0; dev < job_region().ndev(); ++dev) {
    const region::DeviceIdentity &identity = job_region().device(dev).identity;
    if (identity.uuid[0] != '\0' && *uuid != '\0') continue;
    if (*pci != '\0' && strcasecmp(significant_pci(identity.pci_bus_id), significant_pci(pci)) == 0) {
      return static_cast<int>(dev);
    }
  }
  return kNotInJob;
}

void format_uuid(const CUuuid &uuid, char text[40]) {
  const auto *b = reinterpret_cast<const unsigned char *>(uuid.bytes);
  std::snprintf(text, 40, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
                b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

// Answers, kept: 0 = not asked yet, else the region's number + 2 (kNotInJob + 2 == 1). Any thread may write; all write
// the same. Wiped in a child, which may choose other visible devices.
struct Known {
  std::atomic<std::uint8_t> by_ordinal[region::kMaxDevices];
  std::atomic<nvmlDevice_t> handles[region::kMaxDevices];
  std::atomic<std::uint8_t> by_handle[region::kMaxDevices];
};
constinit WipedOnFork<Known> known;

constexpr std::uint8_t kept(int dev) { return static_cast<std::uint8_t>(dev + 2); }

}  // namespace

int region_device(CUdevice ordinal) {
  Known *answers = known.get();
  if (ordinal < 0 || ordinal >= static_cast<int>(region::kMaxDevices) || answers == nullptr) return kNotInJob;
  const std::uint8_t answer = answers->by_ordinal[ordinal].load(std::memory_order_relaxed);
  if (answer != 0) return answer - 2;

  CUuuid uuid;
  char uuid_text[40] = "";
  char pci[32] = "";
  if (REAL(cuDeviceGetUuid_v2)(&uuid, ordinal) == CUDA_SUCCESS ||
      REAL(cuDeviceGetUuid)(&uuid, ordinal) == CUDA_SUCCESS) {
    format_uuid(uuid, uuid_text);
  }
  if (REAL(cuDeviceGetPCIBusId)(pci, sizeof pci, ordinal) != CUDA_SUCCESS) pci[0] = '\0';
  if (*uuid_text == '\0' && *pci == '\0') return kNotInJob;  // the driver is not ready: ask again
  const int dev = find_device(uuid_text, pci);
  answers->by_ordinal[ordinal].store(kept(dev), std::memory_order_relaxed);
  return dev;
}

int region_device(nvmlDevice_t handle) {
  Known *answers = known.get();
  if (handle == nullptr || answers == nullptr) return kNotInJob;
  unsigned free_entry = 0;
  for (; free_entry < region::kMaxDevices; ++free_entry) {
    const nvmlDevice_t entry = answers->handles[free_entry].load(std::memory_order_acquire);
    if (entry == nullptr) break;
    if (entry != handle) continue;
    const std::uint8_t answer = answers->by_handle[free_entry].load(std::memory_order_relaxed);
    if (answer != 0) return answer - 2;
  }

  char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
  nvmlPciInfo_t pci;
  if (REAL(nvmlDeviceGetUUID)(handle, uuid, sizeof uuid) != NVML_SUCCESS) uuid[0] = '\0';
  if (REAL(nvmlDeviceGetPciInfo_v3)(handle, &pci) != NVML_SUCCESS) pci.busId[0] = '\0';
  const int dev = find_device(uuid, pci.busId);
  nvmlDevice_t nobody = nullptr;
  if (free_entry < region::kMaxDevices &&
      answers->handles[free_entry].compare_exchange_strong(nobody, handle, std::memory_order_acq_rel)) {
    answers->by_handle[free_entry].store(kept(dev), std::memory_order_relaxed);
  }
  return dev;
}

}  // namespace vgpu::runtime
