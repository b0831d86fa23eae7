// Synchronisation: the moment at which the driver gives back what was freed in stream order, and at which it can be seen
// what launches have taken: code, stacks, heaps.
#include "runtime/charge.h"
#include "runtime/pool_memory.h"
#include "sm/metered.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

template <typename Wait>
CUresult waited(sm::Awaited awaited, CUstream stream, Wait wait) {
  const bool is_metered = launches_are_metered();
  if (is_metered) sm::before_synchronize(awaited, stream);
  const CUresult result = wait();
  if (is_metered) sm::after_synchronize();
  recheck_pools_when_due();
  if (result == CUDA_SUCCESS && mode() == Mode::active) settle_after_synchronisation();
  return result;
}

}  // namespace

extern "C" {

CUresult cuCtxSynchronize() {
  return waited(sm::Awaited::context, nullptr, [] { return REAL(cuCtxSynchronize)(); });
}
CUresult cuCtxSynchronize_v2(CUcontext context) {
  return waited(sm::Awaited::event, nullptr, [&] { return REAL(cuCtxSynchronize_v2)(context); });
}
CUresult cuStreamSynchronize(CUstream stream) {
  return waited(sm::Awaited::stream, stream, [&] { return REAL(cuStreamSynchronize)(stream); });
}
CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return waited(sm::Awaited::stream, per_thread(stream), [&] { return REAL(cuStreamSynchronize_ptsz)(stream); });
}
CUresult cuEventSynchronize(CUevent event) {
  return waited(sm::Awaited::event, nullptr, [&] { return REAL(cuEventSynchronize)(event); });
}

}  // extern "C"
