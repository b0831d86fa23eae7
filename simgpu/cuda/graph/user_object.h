// See user_object.cc.
#pragma once

#include "simgpu/cuda/graph/graph.h"

namespace simgpu {

constexpr uint32_t kUserObjectMagic = 0x55534f42;

struct UserObject {
  uint32_t magic = kUserObjectMagic;
  void *pointer = nullptr;
  CUhostFn destroy = nullptr;
  uint64_t references = 0;
};

// Expects the driver's lock.
void release_user_object(UserObject *object, uint64_t count);

}  // namespace simgpu
