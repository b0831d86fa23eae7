#include "simgpu/nvml/visible.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simgpu/nvml/manners.h"

namespace simgpu {
namespace {

constexpr unsigned long long kNotAvailable = ~0ull;

// Memory that is held is somebody's, also when his last context has gone.
bool is_visible(const DeviceSlot &books, uint64_t now) {
  if (books.held_blocks.load(std::memory_order_acquire) != 0 &&
      books.holds_visibly_at_ns.load(std::memory_order_relaxed) <= now)
    return true;
  uint64_t since = books.visible_at_ns.load(std::memory_order_relaxed);
  return books.contexts.load(std::memory_order_relaxed) != 0 && since != 0 && since <= now;
}

// Older drivers call a process what the host calls it. Newer ones call it what the asking process's PID namespace does,
// and leave it out when that has no name for it; some do so in the lists of processes alone. For the simulator to do so,
// /proc must be the host's.
bool names_are_local(bool in_list) {
  const char *text = getenv("SIMGPU_NVML_PIDS");
  if (text != nullptr) return strcmp(text, "namespace") == 0;
  return manners().pids == NvmlPids::kNamespace || (manners().pids == NvmlPids::kMixed && in_list);
}

// Where NVML speaks of processes of some other place: beyond PID_MAX_LIMIT, so that nobody here has it.
constexpr unsigned kForeignBase = 1u << 22;
bool names_are_foreign(bool in_list) { return manners().pids == NvmlPids::kForeign && !in_list; }

unsigned long long shown_bytes(const DeviceSlot &books) {
  if (manners().bytes == NvmlBytes::kZero) return 0;
  if (manners().bytes == NvmlBytes::kUnavailable) return kNotAvailable;
  uint64_t blocks = books.held_blocks.load(std::memory_order_relaxed);
  if (manners().counts_imports != 0) blocks += books.imported_blocks.load(std::memory_order_relaxed);
  return blocks * kBlockBytes;
}

ino_t pid_namespace_of(const std::string &pid) {
  struct stat status {};
  return stat(("/proc/" + pid + "/ns/pid").c_str(), &status) == 0 ? status.st_ino : 0;
}

// 0: it has no name here.
unsigned local_name(unsigned host_pid) {
  char self[16] = "";
  ssize_t length = readlink("/proc/self", self, sizeof self - 1);
  if (length > 0 && atoi(self) == getpid()) return host_pid;
  if (pid_namespace_of(std::to_string(host_pid)) != pid_namespace_of("self")) return 0;
  FILE *file = fopen(("/proc/" + std::to_string(host_pid) + "/status").c_str(), "re");
  if (file == nullptr) return 0;
  unsigned name = 0;
  char line[256];
  while (fgets(line, sizeof line, file) != nullptr)
    // From the outermost namespace to its own.
    if (strncmp(line, "NSpid:", 6) == 0) name = static_cast<unsigned>(atoi(strrchr(line, '\t') + 1));
  fclose(file);
  return name;
}

}  // namespace

std::vector<VisibleProcess> visible_processes(Session *session, DeviceState *state, bool in_list) {
  std::vector<VisibleProcess> out;
  const bool local = names_are_local(in_list);
  uint64_t now = monotonic_now_ns();
  NodeState *node = session->node();
  uint32_t end = node->slot_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 1; i < end && i < kMaxProcesses; i++) {
    const ProcessSlot &process = node->slots[i];
    if (process.alive.load(std::memory_order_acquire) == 0) continue;
    const DeviceSlot &books = state->slots[i];
    if (!is_visible(books, now) || !shows_process(i)) continue;
    auto host_pid = static_cast<unsigned>(process.host_pid);
    unsigned pid = local ? local_name(host_pid) : host_pid;
    if (pid == 0) continue;
    if (names_are_foreign(in_list)) pid += kForeignBase;
    out.push_back({pid, host_pid, shown_bytes(books), process.connected_ns, i});
  }
  return out;
}

bool has_room(unsigned found, unsigned *count, const void *out, nvmlReturn_t *result) {
  if (count == nullptr || (*count != 0 && out == nullptr)) {
    *result = NVML_ERROR_INVALID_ARGUMENT;
    return false;
  }
  *result = found <= *count ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
  *count = found;
  return *result == NVML_SUCCESS;
}

}  // namespace simgpu
