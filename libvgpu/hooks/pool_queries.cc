// Pools that the driver has for each place and kind of memory. A device's pool of managed memory is known by these alone,
// so it is noted here, where a program gets hold of it.
#include "runtime/charge.h"
#include "runtime/pool_memory.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

template <typename Call>
CUresult hand_out(CUmemoryPool *pool, const CUmemLocation *location, Call call) {
  CUmemoryPool found = nullptr;
  const CUresult result = call(pool != nullptr ? &found : nullptr);
  if (result != CUDA_SUCCESS || pool == nullptr) return result;
  bool elsewhere = false;
  const bool is_new = mode() == Mode::active && location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
                      pool_of(found, &elsewhere) == nullptr && !elsewhere;
  if (is_new && !pool_made(found, location->id)) {
    return region_device(location->id) == kNotInJob ? charge(kNotInJob, 0) : CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pool = found;
  return result;
}

}  // namespace

extern "C" {

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  return hand_out(pool, location,
                  [&](CUmemoryPool *found) { return REAL(cuMemGetDefaultMemPool)(found, location, type); });
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  return hand_out(pool, location, [&](CUmemoryPool *found) { return REAL(cuMemGetMemPool)(found, location, type); });
}

}  // extern "C"
