#include "simgpu/cuda/launch/prepare.h"

#include <algorithm>

namespace simgpu {
namespace {

// Stack that every thread has in the local memory that comes with a context.
constexpr uint64_t kStackOfContext = 1024;
constexpr uint64_t kResidentPerSm = 2048;

// Local memory is laid out for all threads that can be resident, whatever the launch. It stays until the context goes.
CUresult grow_local_memory(Driver *driver, Function *function) {
  Context *context = function->context;
  const DeviceFacts &facts = context->device->facts();
  if (!facts.local_memory_grows) return CUDA_SUCCESS;
  const uint64_t stack = std::max<uint64_t>(context->limits[CU_LIMIT_STACK_SIZE], function->kernel.local_bytes);
  if (stack <= kStackOfContext) return CUDA_SUCCESS;
  const uint64_t bytes = round_up((stack - kStackOfContext) * facts.sm_count * kResidentPerSm, facts.block_bytes);
  const uint64_t held = context->local_memory.size() * kBlockBytes;
  if (bytes <= held) return CUDA_SUCCESS;
  return take_blocks(driver, context->device, bytes - held, BlockUse::kHeap, &context->local_memory)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult load_function(Driver *driver, Function *function, bool *fresh) {
  *fresh = false;
  if (function->loaded) return CUDA_SUCCESS;
  Context *context = function->context;
  const DeviceFacts &facts = context->device->facts();
  const uint64_t bytes = round_up(context->code_bytes + facts.function_bytes, facts.block_bytes);
  const uint64_t held = context->code.size() * kBlockBytes;
  if (bytes > held && !take_blocks(driver, context->device, bytes - held, BlockUse::kCode, &context->code))
    return CUDA_ERROR_OUT_OF_MEMORY;
  context->code_bytes += facts.function_bytes;
  function->loaded = true;
  *fresh = true;
  return CUDA_SUCCESS;
}

CUresult prepare_function(Driver *driver, Function *function) {
  Device *device = function->context->device;
  bool fresh;
  {
    DriverLock lock(driver->mutex);
    if (CUresult result = load_function(driver, function, &fresh)) return result;
    if (CUresult result = grow_local_memory(driver, function)) return result;
  }
  if (fresh) spend(device, device->facts().function_ns);
  return CUDA_SUCCESS;
}

void spend(Device *device, uint64_t ns) {
  if (ns == 0 || !device->engine.in_real_time()) return;
  const uint64_t until = device->engine.now_ns() + ns;
  while (device->engine.now_ns() < until) continue;
}

void shrink_blocks(Device *device, BlockList *blocks, uint64_t bytes) {
  const uint64_t keep = round_up(bytes, device->facts().block_bytes) / kBlockBytes;
  if (blocks->size() <= keep) return;
  BlockList surplus(blocks->begin() + static_cast<ptrdiff_t>(keep), blocks->end());
  blocks->resize(keep);
  device->blocks.give(surplus, false);
}

}  // namespace simgpu
