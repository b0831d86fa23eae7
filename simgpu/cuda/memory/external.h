// Memory of other interfaces: an object that was imported by a descriptor, and the buffers that were mapped onto it.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

constexpr uint32_t kExternalMagic = 0x45585431;

// Lives until the object is destroyed and the last buffer on it is freed.
struct ExternalMemory {
  uint32_t magic = kExternalMagic;
  Area *area = nullptr;
  std::multiset<CUdeviceptr> buffers;
  bool destroyed = false;
};

// cuMemFree of a buffer. Expects the driver's lock.
CUresult free_external_buffer(Driver *driver, Area *area, CUdeviceptr address);

}  // namespace simgpu
