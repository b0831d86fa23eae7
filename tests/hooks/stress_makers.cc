#include "stress_makers.h"

#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>

namespace vgpu::test {

namespace {

using Handle = CUmemGenericAllocationHandle;

// Does one step after another, as long as they succeed.
template <typename... Steps>
CUresult all_of(Steps... steps) {
  CUresult result = CUDA_SUCCESS;
  ((result = result == CUDA_SUCCESS ? steps() : result), ...);
  return result;
}

CUmemAllocationProp physical_on(CUdevice on) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = on;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUresult make_async(std::uint64_t *handle, std::uint64_t bytes, CUdevice) {
  CUdeviceptr pointer = 0;
  const CUresult result = DRIVER(cuMemAllocAsync)(&pointer, bytes, nullptr);
  *handle = pointer;
  return result;
}

// What is freed goes back to the pool; half of the time it is seen to that the pool gives it back.
CUresult free_async(std::uint64_t handle) {
  static std::atomic<unsigned> turn{0};
  const CUresult result = DRIVER(cuMemFreeAsync)(handle, nullptr);
  return result == CUDA_SUCCESS && ++turn % 2 == 0 ? DRIVER(cuStreamSynchronize)(nullptr) : result;
}

// What the threads of a process share.
std::mutex shared;
using Lock = std::lock_guard<std::mutex>;
using Pools = std::map<CUdevice, CUmemoryPool>;

CUresult allocate_from(Pools &pools, std::uint64_t *handle, std::uint64_t bytes, CUdevice on) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = on;
  CUmemoryPool pool = nullptr;
  {
    Lock lock(shared);
    if (pools[on] == nullptr) {
      const CUresult result = DRIVER(cuMemPoolCreate)(&pools[on], &properties);
      if (result != CUDA_SUCCESS) return result;
    }
    pool = pools[on];
  }
  CUdeviceptr pointer = 0;
  const CUresult result = DRIVER(cuMemAllocFromPoolAsync)(&pointer, bytes, pool, nullptr);
  *handle = pointer;
  return result;
}

CUresult make_from_pool(std::uint64_t *handle, std::uint64_t bytes, CUdevice on) {
  static Pools pools;
  return allocate_from(pools, handle, bytes, on);
}

// From one that is destroyed after a while, with memory in use. By one thread alone.
CUresult make_from_passing_pool(std::uint64_t *handle, std::uint64_t bytes, CUdevice on) {
  static Pools pools;
  static unsigned turn = 0;
  if (pools[on] != nullptr && ++turn % 50 == 0) {
    const CUresult result = DRIVER(cuMemPoolDestroy)(pools[on]);
    pools[on] = nullptr;
    if (result != CUDA_SUCCESS) return result;
  }
  return allocate_from(pools, handle, bytes, on);
}

CUresult make_plain(std::uint64_t *handle, std::uint64_t bytes, CUdevice) {
  CUdeviceptr pointer = 0;
  const CUresult result = DRIVER(cuMemAlloc_v2)(&pointer, bytes);
  *handle = pointer;
  return result;
}

CUresult free_plain(std::uint64_t handle) { return DRIVER(cuMemFree_v2)(handle); }

CUresult make_physical(std::uint64_t *handle, std::uint64_t bytes, CUdevice on) {
  const auto properties = physical_on(on);
  Handle made = 0;
  const CUresult result = DRIVER(cuMemCreate)(&made, bytes, &properties, 0);
  *handle = made;
  return result;
}

CUresult free_physical(std::uint64_t handle) { return DRIVER(cuMemRelease)(handle); }

std::map<std::uint64_t, std::uint64_t> &mapped_bytes() {
  static std::map<std::uint64_t, std::uint64_t> all;
  return all;
}

// Memory that only its mapping holds.
CUresult make_mapped(std::uint64_t *handle, std::uint64_t bytes, CUdevice on) {
  std::uint64_t piece = 0;
  CUdeviceptr address = 0;
  const CUresult result = make_physical(&piece, bytes, on);
  if (result != CUDA_SUCCESS) return result;
  return all_of([&] { return DRIVER(cuMemAddressReserve)(&address, bytes, 0, 0, 0); },
                [&] { return DRIVER(cuMemMap)(address, bytes, 0, piece, 0); },
                [&] {
                  Lock lock(shared);
                  mapped_bytes()[address] = bytes;
                  *handle = address;
                  return DRIVER(cuMemRelease)(piece);
                });
}

CUresult free_mapped(std::uint64_t handle) {
  std::uint64_t bytes = 0;
  {
    Lock lock(shared);
    bytes = mapped_bytes()[handle];
    mapped_bytes().erase(handle);
  }
  return all_of([&] { return DRIVER(cuMemUnmap)(handle, bytes); },
                [&] { return DRIVER(cuMemAddressFree)(handle, bytes); });
}

// Memory that this process exported and imported again, and holds by the import alone.
CUresult make_imported(std::uint64_t *handle, std::uint64_t bytes, CUdevice on) {
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::uint64_t piece = 0;
  int fd = -1;
  Handle imported = 0;
  const CUresult result = all_of([&] { return make_physical(&piece, bytes, on); },
                                 [&] { return DRIVER(cuMemExportToShareableHandle)(&fd, piece, kDescriptor, 0); },
                                 [&] {
                                   return DRIVER(cuMemImportFromShareableHandle)(
                                       &imported, reinterpret_cast<void *>(static_cast<long>(fd)), kDescriptor);
                                 },
                                 [&] { return DRIVER(cuMemRelease)(piece); });
  if (fd >= 0) close(fd);
  *handle = imported;
  return result;
}

struct Launched {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};
std::map<std::uint64_t, Launched> &launched() {
  static std::map<std::uint64_t, Launched> all;
  return all;
}

CUresult destroy(const Launched &gone) {
  return all_of([&] { return gone.exec != nullptr ? DRIVER(cuGraphExecDestroy)(gone.exec) : CUDA_SUCCESS; },
                [&] { return DRIVER(cuGraphDestroy)(gone.graph); });
}

CUresult make_by_graph(std::uint64_t *handle, std::uint64_t bytes, CUdevice on) {
  Launched fresh;
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.poolProps.location.id = on;
  params.bytesize = bytes;
  const CUresult result =
      all_of([&] { return DRIVER(cuGraphCreate)(&fresh.graph, 0); },
             [&] { return DRIVER(cuGraphAddMemAllocNode)(&node, fresh.graph, nullptr, 0, &params); },
             [&] { return DRIVER(cuGraphInstantiateWithFlags)(&fresh.exec, fresh.graph, 0); },
             [&] { return DRIVER(cuGraphLaunch)(fresh.exec, nullptr); });
  if (result != CUDA_SUCCESS) {
    destroy(fresh);
    return result;
  }
  Lock lock(shared);
  launched()[params.dptr] = fresh;
  *handle = params.dptr;
  return result;
}

CUresult free_of_graph(std::uint64_t handle) {
  Launched gone;
  {
    Lock lock(shared);
    gone = launched()[handle];
    launched().erase(handle);
  }
  CUdevice on = 0;
  static std::atomic<unsigned> turn{0};
  return all_of([&] { return DRIVER(cuMemFreeAsync)(handle, nullptr); }, [&] { return destroy(gone); },
                [&] { return DRIVER(cuCtxGetDevice)(&on); },
                [&] { return ++turn % 2 == 0 ? DRIVER(cuDeviceGraphMemTrim)(on) : CUDA_SUCCESS; });
}

constexpr ProcessMaker kMakers[] = {
    {"async", make_async, free_async, false},
    {"async, freed plainly", make_async, free_plain, false},
    {"of a pool", make_from_pool, free_async, false},
    {"of a pool that goes", make_from_passing_pool, free_async, true},
    {"plain, freed in stream order", make_plain, free_async, true},
    {"physical", make_physical, free_physical, false},
    {"mapped", make_mapped, free_mapped, false},
    {"imported", make_imported, free_physical, true},
    {"by a graph", make_by_graph, free_of_graph, false},
};

}  // namespace

std::span<const ProcessMaker> process_makers() { return kMakers; }

}  // namespace vgpu::test
