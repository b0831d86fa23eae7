// How long kernels take.
#pragma once

#include <algorithm>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/module/module.h"

namespace simgpu {

// By the device's rules, else by its own name if that says it, as in `spin_200us`, else by the device's default.
KernelTime time_of_kernel(const DeviceFacts &facts, const std::string &name);

// A wave is one block on each SM.
inline uint64_t duration_ns(const Function *function, uint64_t blocks) {
  uint64_t ns = function->time.base_ns;
  if (function->time.wave_ns != 0) {
    const uint64_t sms = function->context->device->facts().sm_count;
    ns += (blocks + sms - 1) / sms * function->time.wave_ns;
  }
  return ns;
}

// How many SMs the blocks fill, as many on each as it can have resident.
inline uint64_t occupied_sms(const Function *function, uint64_t blocks, uint64_t threads) {
  constexpr uint64_t kThreadsPerSm = 2048, kBlocksPerSm = 32;
  const uint64_t on_each = std::clamp<uint64_t>(kThreadsPerSm / std::max<uint64_t>(threads, 1), 1, kBlocksPerSm);
  return std::min<uint64_t>((blocks + on_each - 1) / on_each, function->context->device->facts().sm_count);
}

}  // namespace simgpu
