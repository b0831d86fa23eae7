// What a multicast object holds on to. It is a physical handle without memory, so that it can be mapped and released.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

struct PhysicalHandle;

struct Multicast {
  struct Binding {
    PhysicalHandle *memory;
    size_t offset, bytes;
  };
  unsigned device_count = 0;
  std::set<Device *> devices;
  std::vector<Binding> bindings;
};

// Expects the driver's lock.
void unbind_all(Driver *driver, Multicast &object);

}  // namespace simgpu
