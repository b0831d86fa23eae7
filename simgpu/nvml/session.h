// The simulated libnvidia-ml. Here are its link to the node, counted by nvmlInit and nvmlShutdown, and what its handles
// mean.
#pragma once

#include <nvml.h>

#include "simgpu/node/engine.h"
#include "simgpu/node/link.h"

namespace simgpu {

class Session {
 public:
  // Null while nobody has initialised the library in this process.
  static Session *current();
  // The last one, also when nobody uses the library any more.
  static Session *kept();
  static nvmlReturn_t open();
  static nvmlReturn_t close();

  NodeLink link;
  std::vector<std::unique_ptr<Engine>> engines;  // of the devices, in their order
  NodeState *node() { return link.node(); }
  unsigned device_count() { return static_cast<unsigned>(link.devices().size()); }
  DeviceState *device(unsigned index) { return index < device_count() ? link.devices()[index].state : nullptr; }
};

nvmlDevice_t to_handle(DeviceState *state);
uint64_t monotonic_now_ns();
uint64_t free_device_bytes(Session *session, DeviceState *state);

// What every call about a device starts with.
#define NVML_DEVICE(session, state, handle)                              \
  ::simgpu::Session *session = ::simgpu::Session::current();             \
  if (session == nullptr) return NVML_ERROR_UNINITIALIZED;               \
  ::simgpu::DeviceState *state = ::simgpu::find_device(session, handle); \
  if (state == nullptr) return NVML_ERROR_INVALID_ARGUMENT;              \
  if (state->broken.load(std::memory_order_relaxed) != 0) return NVML_ERROR_GPU_IS_LOST

DeviceState *find_device(Session *session, nvmlDevice_t handle);

}  // namespace simgpu
