// Who uses a device: processes with a context or memory on it, by the PID the host knows them by, once visible.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "nvml/session.h"

using namespace simgpu;

namespace {

struct Entry {
  unsigned pid;
  unsigned long long bytes;
};

// Memory that is held is somebody's, also when his last context has gone.
bool is_visible(const DeviceSlot &books, uint64_t now) {
  if (books.held_blocks.load(std::memory_order_acquire) != 0 &&
      books.holds_visibly_at_ns.load(std::memory_order_relaxed) <= now)
    return true;
  uint64_t since = books.visible_at_ns.load(std::memory_order_relaxed);
  return books.contexts.load(std::memory_order_relaxed) != 0 && since != 0 && since <= now;
}

std::vector<Entry> visible(Session *session, DeviceState *state) {
  std::vector<Entry> out;
  uint64_t now = monotonic_now_ns();
  NodeState *node = session->node();
  uint32_t end = node->slot_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 1; i < end && i < kMaxProcesses; i++) {
    if (node->slots[i].alive.load(std::memory_order_acquire) == 0) continue;
    const DeviceSlot &books = state->slots[i];
    if (!is_visible(books, now)) continue;
    out.push_back({static_cast<unsigned>(node->slots[i].host_pid),
                   books.held_blocks.load(std::memory_order_relaxed) * kBlockBytes});
  }
  return out;
}

// Early drivers of the 535 series wrote 32 bytes for each process where the header said 24, under the same name. Clients
// have to cope with both, so both can be had.
size_t third_version_stride() {
  const char *text = getenv("SIMGPU_NVML_PROCESS_BYTES");
  return text != nullptr && strcmp(text, "32") == 0 ? 32 : sizeof(nvmlProcessInfo_v2_t);
}

// Versions differ only in how much is written for each process: pid and memory come first in all of them.
nvmlReturn_t list(nvmlDevice_t device, unsigned *count, void *out, size_t stride, bool compute) {
  NVML_DEVICE(session, state, device);
  if (count == nullptr || (*count != 0 && out == nullptr)) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<Entry> entries;
  if (compute) entries = visible(session, state);
  auto found = static_cast<unsigned>(entries.size());
  bool fits = found <= *count;
  *count = found;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < found; i++) {
    char *place = static_cast<char *>(out) + i * stride;
    nvmlProcessInfo_v2_t info{entries[i].pid, entries[i].bytes, 0xffffffffu, 0xffffffffu};
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

// No samples until there is a model of time.
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *, unsigned int *count,
                                             unsigned long long) {
  NVML_DEVICE(session, state, device);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_ERROR_NOT_FOUND;
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
