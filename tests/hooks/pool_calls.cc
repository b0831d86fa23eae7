// Stream-ordered pools, and the synchronisations at which they give back.
#include <atomic>
#include <thread>
#include <vector>

#include "calls.h"

namespace vgpu::test {

namespace {

constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUstream stream(Arguments &in) { return handle<CUstream>(in); }
CUmemoryPool pool(Arguments &in) { return handle<CUmemoryPool>(in); }

CUmemPoolProps properties(Arguments &in) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device(in);
  properties.handleTypes = next<int>(in) != 0 ? kDescriptor : CU_MEM_HANDLE_TYPE_NONE;
  return properties;
}

CUmemLocation location(Arguments &in) {
  CUmemLocation place = {};
  place.type = CU_MEM_LOCATION_TYPE_DEVICE;
  place.id = device(in);
  return place;
}

int get_attribute(CUmemoryPool of, CUmemPool_attribute which, Values &out) {
  return answer<cuuint64_t>(out, [&](cuuint64_t *value) { return DRIVER(cuMemPoolGetAttribute)(of, which, value); });
}

// Host functions wait for this, and whatever was queued behind them.
std::atomic<bool> holding{false};
void wait_to_be_let_go(void *) {
  while (holding.load()) std::this_thread::yield();
}

// Threads that take from one pool and give back, in turns, as fast as they can. Answers how often one was refused.
int race(Arguments &in, Values &out) {
  const CUmemoryPool from = pool(in);
  const auto threads = number(in), rounds = number(in), bytes = number(in);
  CUcontext context = nullptr;
  DRIVER(cuCtxGetCurrent)(&context);
  std::atomic<int> refused{0}, failed{0};
  std::vector<std::thread> all;
  for (std::uint64_t i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      CUstream own = nullptr;
      DRIVER(cuCtxSetCurrent)(context);
      DRIVER(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING);
      for (std::uint64_t round = 0; round < rounds; ++round) {
        CUdeviceptr pointer = 0;
        const CUresult result = DRIVER(cuMemAllocFromPoolAsync)(&pointer, bytes, from, own);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) ++refused;
        if (result != CUDA_SUCCESS) continue;
        if (DRIVER(cuMemFreeAsync)(pointer, own) != CUDA_SUCCESS) ++failed;
        if (round % 8 == 0) DRIVER(cuStreamSynchronize)(own);
      }
      DRIVER(cuStreamDestroy_v2)(own);
    });
  }
  for (std::thread &thread : all) thread.join();
  out << ' ' << refused.load();
  return failed.load();
}

constexpr Call kCalls[] = {
    CALL(cuMemAllocAsync,
         {
           const auto bytes = number(in);
           const auto on = stream(in);
           return answer<CUdeviceptr>(out, [&](CUdeviceptr *p) { return DRIVER(cuMemAllocAsync)(p, bytes, on); });
         }),
    CALL(cuMemAllocAsync_ptsz,
         {
           const auto bytes = number(in);
           const auto on = stream(in);
           return answer<CUdeviceptr>(out, [&](CUdeviceptr *p) { return DRIVER(cuMemAllocAsync_ptsz)(p, bytes, on); });
         }),
    CALL(cuMemAllocFromPoolAsync,
         {
           const auto bytes = number(in);
           const auto on = stream(in);
           const auto from = pool(in);
           return answer<CUdeviceptr>(
               out, [&](CUdeviceptr *p) { return DRIVER(cuMemAllocFromPoolAsync)(p, bytes, from, on); });
         }),
    CALL(cuMemAllocFromPoolAsync_ptsz,
         {
           const auto bytes = number(in);
           const auto on = stream(in);
           const auto from = pool(in);
           return answer<CUdeviceptr>(
               out, [&](CUdeviceptr *p) { return DRIVER(cuMemAllocFromPoolAsync_ptsz)(p, bytes, from, on); });
         }),
    CALL(cuMemFreeAsync,
         {
           const auto pointer = number(in);
           return DRIVER(cuMemFreeAsync)(pointer, stream(in));
         }),
    CALL(cuMemFreeAsync_ptsz,
         {
           const auto pointer = number(in);
           return DRIVER(cuMemFreeAsync_ptsz)(pointer, stream(in));
         }),
    CALL(cuMemPoolCreate,
         {
           const auto wanted = properties(in);
           return answer<CUmemoryPool>(out, [&](CUmemoryPool *p) { return DRIVER(cuMemPoolCreate)(p, &wanted); });
         }),
    CALL(cuMemPoolDestroy, { return DRIVER(cuMemPoolDestroy)(pool(in)); }),
    CALL(cuMemPoolTrimTo,
         {
           const auto which = pool(in);
           return DRIVER(cuMemPoolTrimTo)(which, number(in));
         }),
    CALL(threshold,
         {
           const auto which = pool(in);
           cuuint64_t bytes = number(in);
           return DRIVER(cuMemPoolSetAttribute)(which, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
         }),
    CALL(reserved, { return get_attribute(pool(in), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, out); }),
    CALL(cuDeviceGetDefaultMemPool,
         {
           const auto on = device(in);
           return answer<CUmemoryPool>(out, [&](CUmemoryPool *p) { return DRIVER(cuDeviceGetDefaultMemPool)(p, on); });
         }),
    CALL(cuDeviceGetMemPool,
         {
           const auto on = device(in);
           return answer<CUmemoryPool>(out, [&](CUmemoryPool *p) { return DRIVER(cuDeviceGetMemPool)(p, on); });
         }),
    CALL(cuDeviceSetMemPool,
         {
           const auto on = device(in);
           return DRIVER(cuDeviceSetMemPool)(on, pool(in));
         }),
    CALL(cuMemGetDefaultMemPool,
         {
           auto on = location(in);
           return answer<CUmemoryPool>(out, [&](CUmemoryPool *p) {
             return DRIVER(cuMemGetDefaultMemPool)(p, &on, CU_MEM_ALLOCATION_TYPE_PINNED);
           });
         }),
    CALL(cuMemGetMemPool,
         {
           auto on = location(in);
           return answer<CUmemoryPool>(
               out, [&](CUmemoryPool *p) { return DRIVER(cuMemGetMemPool)(p, &on, CU_MEM_ALLOCATION_TYPE_PINNED); });
         }),
    // Of managed memory, which no other call hands out.
    CALL(managed_pool,
         {
           auto on = location(in);
           return answer<CUmemoryPool>(out, [&](CUmemoryPool *p) {
             return DRIVER(cuMemGetDefaultMemPool)(p, &on, CU_MEM_ALLOCATION_TYPE_MANAGED);
           });
         }),
    CALL(current_managed_pool,
         {
           auto on = location(in);
           return answer<CUmemoryPool>(
               out, [&](CUmemoryPool *p) { return DRIVER(cuMemGetMemPool)(p, &on, CU_MEM_ALLOCATION_TYPE_MANAGED); });
         }),
    CALL(cuMemSetMemPool,
         {
           auto on = location(in);
           return DRIVER(cuMemSetMemPool)(&on, CU_MEM_ALLOCATION_TYPE_PINNED, pool(in));
         }),
    CALL(cuMemPoolExportToShareableHandle,
         {
           const auto which = pool(in);
           return answer<int>(
               out, [&](int *fd) { return DRIVER(cuMemPoolExportToShareableHandle)(fd, which, kDescriptor, 0); });
         }),
    CALL(cuMemPoolImportFromShareableHandle,
         {
           void *fd = handle<void *>(in);
           return answer<CUmemoryPool>(
               out, [&](CUmemoryPool *p) { return DRIVER(cuMemPoolImportFromShareableHandle)(p, fd, kDescriptor, 0); });
         }),
    CALL(cuMemPoolExportPointer,
         {
           CUmemPoolPtrExportData data = {};
           const CUresult result = DRIVER(cuMemPoolExportPointer)(&data, number(in));
           write_hex(data, out);
           return result;
         }),
    CALL(cuMemPoolImportPointer,
         {
           const auto which = pool(in);
           auto data = read_hex<CUmemPoolPtrExportData>(in);
           return answer<CUdeviceptr>(out,
                                      [&](CUdeviceptr *p) { return DRIVER(cuMemPoolImportPointer)(p, which, &data); });
         }),

    CALL(cuStreamCreate,
         {
           const auto flags = next<unsigned>(in);
           return answer<CUstream>(out, [&](CUstream *s) { return DRIVER(cuStreamCreate)(s, flags); });
         }),
    CALL(cuEventCreate, { return answer<CUevent>(out, [](CUevent *e) { return DRIVER(cuEventCreate)(e, 0); }); }),
    CALL(cuCtxSynchronize, { return DRIVER(cuCtxSynchronize)(); }),
    CALL(cuCtxSynchronize_v2, { return DRIVER(cuCtxSynchronize_v2)(handle<CUcontext>(in)); }),
    CALL(cuStreamSynchronize, { return DRIVER(cuStreamSynchronize)(stream(in)); }),
    CALL(cuStreamSynchronize_ptsz, { return DRIVER(cuStreamSynchronize_ptsz)(stream(in)); }),
    CALL(cuEventSynchronize, { return DRIVER(cuEventSynchronize)(handle<CUevent>(in)); }),

    CALL(hold,
         {
           holding = true;
           return DRIVER(cuLaunchHostFunc)(stream(in), wait_to_be_let_go, nullptr);
         }),
    CALL(letgo,
         {
           holding = false;
           return 0;
         }),
    CALL(race, { return race(in, out); }),
};

}  // namespace

std::span<const Call> pool_calls() { return kCalls; }

}  // namespace vgpu::test
