// Synchronisation: the moment at which the driver gives back what was freed in stream order.
#include "charge.h"
#include "runtime/stock.h"

using namespace vgpu;

namespace {

CUresult after_waiting(CUresult result) {
  look_at_stock_when_due();
  return result;
}

}  // namespace

extern "C" {

CUresult cuCtxSynchronize() { return after_waiting(REAL(cuCtxSynchronize)()); }
CUresult cuCtxSynchronize_v2(CUcontext context) { return after_waiting(REAL(cuCtxSynchronize_v2)(context)); }
CUresult cuStreamSynchronize(CUstream stream) { return after_waiting(REAL(cuStreamSynchronize)(stream)); }
CUresult cuStreamSynchronize_ptsz(CUstream stream) { return after_waiting(REAL(cuStreamSynchronize_ptsz)(stream)); }
CUresult cuEventSynchronize(CUevent event) { return after_waiting(REAL(cuEventSynchronize)(event)); }

}  // extern "C"
