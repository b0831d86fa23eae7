// Lists of who uses a device, in all their versions.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simgpu/nvml/newer.h"
#include "simgpu/nvml/visible.h"

using namespace simgpu;

namespace {

// Early drivers of the 535 series wrote 32 bytes for each process where the header said 24, under the same name. Clients
// have to cope with both, so both can be had.
size_t third_version_stride() {
  const char *text = getenv("SIMGPU_NVML_PROCESS_BYTES");
  return text != nullptr && strcmp(text, "32") == 0 ? 32 : sizeof(nvmlProcessInfo_v2_t);
}

// Versions differ only in how much is written for each process: pid and memory come first in all of them.
nvmlReturn_t list(nvmlDevice_t device, unsigned *count, void *out, size_t stride, bool compute) {
  NVML_DEVICE(session, state, device);
  std::vector<VisibleProcess> processes;
  if (compute) processes = visible_processes(session, state, true);
  nvmlReturn_t result;
  if (!has_room(static_cast<unsigned>(processes.size()), count, out, &result)) return result;
  for (size_t i = 0; i < processes.size(); i++) {
    char *place = static_cast<char *>(out) + i * stride;
    nvmlProcessInfo_v2_t info{processes[i].pid, processes[i].bytes, 0xffffffffu, 0xffffffffu};
    memset(place, 0, stride);
    memcpy(place, &info, stride < sizeof info ? stride : sizeof info);
  }
  return NVML_SUCCESS;
}

}  // namespace

#define LISTS(kind, compute)                                                                                          \
  nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v1_t *out) {    \
    return list(d, n, out, sizeof(nvmlProcessInfo_v1_t), compute);                                                    \
  }                                                                                                                   \
  nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v2(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v2_t *out) { \
    return list(d, n, out, sizeof(nvmlProcessInfo_v2_t), compute);                                                    \
  }                                                                                                                   \
  nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v3(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_t *out) {    \
    return list(d, n, out, third_version_stride(), compute);                                                          \
  }

extern "C" {

LISTS(Compute, true)
LISTS(Graphics, false)
LISTS(MPSCompute, false)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list) {
  NVML_DEVICE(session, state, device);
  if (list == nullptr || list->mode > 2) return NVML_ERROR_INVALID_ARGUMENT;
  if (list->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  std::vector<VisibleProcess> processes;
  if (list->mode == 0) processes = visible_processes(session, state, true);
  nvmlReturn_t result;
  if (!has_room(static_cast<unsigned>(processes.size()), &list->numProcArrayEntries, list->procArray, &result))
    return result;
  for (size_t i = 0; i < processes.size(); i++)
    list->procArray[i] = {processes[i].pid, processes[i].bytes, 0xffffffffu, 0xffffffffu, 0};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
  if (Session::current() == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  FILE *file = fopen(path, "re");
  if (file == nullptr) return NVML_ERROR_NOT_FOUND;
  char text[4096];
  size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = '\0';
  snprintf(name, length, "%s", text);
  return NVML_SUCCESS;
}

}  // extern "C"
