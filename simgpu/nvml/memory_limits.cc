// Limits are stored and shown, not enforced.
#include "simgpu/nvml/memory_limits.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "simgpu/nvml/session.h"

using namespace simgpu;

namespace {

bool below(const char *path, const char *root) {
  size_t length = strlen(root);
  return strncmp(path, root, length) == 0 && (path[length] == '\0' || path[length] == '/' || root[length - 1] == '/');
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits) {
  NVML_DEVICE(session, state, device);
  if (limits == nullptr || limits->softLimit > limits->hardLimit) return NVML_ERROR_INVALID_ARGUMENT;
  Message message{};
  if (limits->nameSpace == nullptr || strlen(limits->nameSpace) >= sizeof message.text)
    return NVML_ERROR_INVALID_ARGUMENT;
  message.op = Op::kSetLimit;
  message.device = state->index;
  message.bytes = limits->softLimit;
  message.extra = limits->hardLimit;
  strcpy(message.text, limits->nameSpace);
  switch (session->link.call(&message)) {
    case 0:
      return NVML_SUCCESS;
    case EPERM:
      return NVML_ERROR_NO_PERMISSION;
    case ENOSPC:
      return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case EINVAL:
      return NVML_ERROR_INVALID_ARGUMENT;
    default:
      return NVML_ERROR_UNKNOWN;
  }
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
  NVML_DEVICE(session, state, device);
  if (limits == nullptr || limits->nameSpace == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  NodeState *node = session->node();
  for (const MemoryLimit &row : node->limits) {
    if (row.in_use == 0 || row.device != state->index || strcmp(row.cgroup, limits->nameSpace) != 0) continue;
    uint32_t sequence;
    do {
      sequence = node->limit_sequence.load(std::memory_order_acquire) & ~1u;
      limits->softLimit = row.soft_bytes;
      limits->hardLimit = row.hard_bytes;
    } while (node->limit_sequence.load(std::memory_order_acquire) != sequence);
    uint64_t used = 0;
    uint32_t end = node->slot_high_water.load(std::memory_order_acquire);
    for (uint32_t i = 1; i < end && i < kMaxProcesses; i++)
      if (node->slots[i].alive.load(std::memory_order_acquire) != 0 && below(node->slots[i].cgroup, row.cgroup))
        used += state->slots[i].held_blocks.load(std::memory_order_relaxed) * kBlockBytes;
    limits->currentUsed = used;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // extern "C"
