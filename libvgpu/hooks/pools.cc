// Stream-ordered allocations: what a pool has reserved is charged, whoever uses it.
#include "runtime/charge.h"
#include "runtime/graphs.h"
#include "runtime/pool_memory.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

bool is_capturing(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return false;  // cannot be captured
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// What is queued on a stream must be over before its memory is back in the pool and can be given back.
void undo(CUmemoryPool pool, CUdeviceptr pointer, CUstream stream) {
  REAL(cuMemFreeAsync)(pointer, stream);
  REAL(cuStreamSynchronize)(stream);
  REAL(cuMemPoolTrimTo)(pool, 0);
}

template <typename Call>
CUresult allocate_from(CUmemoryPool pool, CUdeviceptr *pointer, size_t bytes, CUstream stream, Call call) {
  if (is_capturing(stream)) {
    // A node of a graph: the memory is taken when that is launched.
    note_graph_allocates();
    return call(pointer);
  }
  bool elsewhere = false;
  Pool *known = pool_of(pool, &elsewhere);
  if (elsewhere) return charge(kNotInJob, bytes);
  if (known == nullptr) return call(pointer);  // not a device's, or nothing the driver knows
  settle_untracked_when_due();
  PoolCharge charge(*known, bytes);
  if (!charge.reserve()) return CUDA_ERROR_OUT_OF_MEMORY;
  do {
    CUdeviceptr made = 0;
    const CUresult result = call(&made);
    if (result != CUDA_SUCCESS) {
      charge.cancel();
      return result;
    }
    if (charge.settle()) {
      *pointer = made;
      return CUDA_SUCCESS;
    }
    undo(pool, made, stream);
    charge.cancel();
  } while (charge.reserve_again());
  note_pools_may_shrink();
  recheck_pools_when_due();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// From the pool that is current on the device of the stream, which need not be where the thread is.
template <typename Call>
CUresult allocate_here(CUdeviceptr *pointer, size_t bytes, CUstream stream, Call call) {
  const Mode now = mode();
  if (now == Mode::closed) return kNotReady;
  if (now == Mode::inert || pointer == nullptr || bytes == 0) return call(pointer);
  Place place;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  const bool is_default = stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  const bool of_stream = !is_default && REAL(cuStreamGetCtx)(stream, &context) == CUDA_SUCCESS;
  if (!(of_stream && known_place(context, &place)) && !current_place(&place)) return call(pointer);
  if (place.dev == kNotInJob) return charge(place.dev, bytes);
  if (REAL(cuDeviceGetMemPool)(&pool, place.ordinal) != CUDA_SUCCESS) return call(pointer);
  return allocate_from(pool, pointer, bytes, stream, call);
}

template <typename Call>
CUresult allocate_there(CUmemoryPool pool, CUdeviceptr *pointer, size_t bytes, CUstream stream, Call call) {
  const Mode now = mode();
  if (now == Mode::closed) return kNotReady;
  if (now == Mode::inert || pointer == nullptr || bytes == 0) return call(pointer);
  return allocate_from(pool, pointer, bytes, stream, call);
}

// What is freed stays in the pool until it is trimmed, at the next synchronisation perhaps. Memory that was not from a
// pool may be freed this way too, at a time that nobody tells: until it is measured it counts as untracked memory.
template <typename Call>
CUresult free_async(CUdeviceptr pointer, Call call) {
  if (mode() != Mode::active) return call();
  Allocation allocation;
  const Taken taken = take_pointer(pointer, &allocation);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) note_pools_may_shrink();
  if (taken == Taken::not_ours) {
    if (result == CUDA_SUCCESS && __builtin_expect(has_imports(), false)) close_import(pointer);
    return result;
  }
  if (result != CUDA_SUCCESS) {
    put_back_pointer(pointer, allocation, taken);
  } else if (taken != Taken::piece) {
    leave_behind(allocation);
  }
  return result;
}

}  // namespace

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
  return allocate_here(pointer, bytes, stream,
                       [&](CUdeviceptr *made) { return REAL(cuMemAllocAsync)(made, bytes, stream); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
  return allocate_here(pointer, bytes, per_thread(stream),
                       [&](CUdeviceptr *made) { return REAL(cuMemAllocAsync_ptsz)(made, bytes, stream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return allocate_there(pool, pointer, bytes, stream,
                        [&](CUdeviceptr *made) { return REAL(cuMemAllocFromPoolAsync)(made, bytes, pool, stream); });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return allocate_there(pool, pointer, bytes, per_thread(stream), [&](CUdeviceptr *made) {
    return REAL(cuMemAllocFromPoolAsync_ptsz)(made, bytes, pool, stream);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return free_async(pointer, [&] { return REAL(cuMemFreeAsync)(pointer, stream); });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return free_async(pointer, [&] { return REAL(cuMemFreeAsync_ptsz)(pointer, stream); });
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
  const bool on_device = mode() == Mode::active && properties != nullptr && pool != nullptr &&
                         properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!on_device) return REAL(cuMemPoolCreate)(pool, properties);
  const CUdevice ordinal = properties->location.id;
  if (region_device(ordinal) == kNotInJob && exists(ordinal)) return charge(kNotInJob, 0);
  CUmemoryPool made = nullptr;
  const CUresult result = REAL(cuMemPoolCreate)(&made, properties);
  if (result != CUDA_SUCCESS) return result;
  if (!pool_made(made, ordinal)) {
    REAL(cuMemPoolDestroy)(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pool = made;
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (mode() != Mode::active) return REAL(cuMemPoolDestroy)(pool);
  const Forgotten forgotten = forget_pool(pool);
  const CUresult result = REAL(cuMemPoolDestroy)(pool);
  if (result != CUDA_SUCCESS) {
    put_back_pool(pool, forgotten);
  } else if (forgotten.bytes != 0) {
    untrack_data(forgotten.dev, forgotten.bytes);
  }
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  const CUresult result = REAL(cuMemPoolTrimTo)(pool, keep);
  note_pools_may_shrink();
  recheck_pools_when_due();
  return result;
}

}  // extern "C"
