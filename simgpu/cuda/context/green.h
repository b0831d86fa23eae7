// Green contexts: a share of a device's SMs under a handle of its own. Its memory and streams are the primary context's.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

constexpr uint32_t kGreenMagic = 0x47524e31;

struct GreenContext {
  uint32_t magic = kGreenMagic;
  Device *device = nullptr;
  unsigned sms = 0;
  uint64_t id = 0;
  BlockList overhead;
  Context *face = nullptr;  // what cuCtxFromGreenCtx returns; calls in it are calls in the primary context
};

GreenContext *valid_green(CUgreenCtx handle);

}  // namespace simgpu
