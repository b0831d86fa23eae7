// A program that takes memory of every kind when it is told to: an order on each line, answered by the driver's result and
// the microseconds that it took. It first says who it is, and where its job keeps its books.
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <sstream>

#include "kernels.h"
#include "tables.h"

namespace tables {

namespace {

struct Held {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  std::vector<CUdeviceptr> linear, async;
  CUmemGenericAllocationHandle physical = 0;
  CUdeviceptr mapped = 0;
  size_t mapped_bytes = 0;
} held;

// Of calls that are made whatever becomes of those before them.
CUresult first_failure(std::initializer_list<CUresult> results) {
  for (const CUresult result : results) {
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult launch(const char *name, size_t times = 1) {
  CUfunction function = nullptr;
  CUdeviceptr none = 0;
  void *parameters[] = {&none};
  CUresult result = CU(cuModuleGetFunction)(&function, held.module, name);
  for (size_t i = 0; i < times && result == CUDA_SUCCESS; ++i) {
    result = CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr);
  }
  return first_failure({result, CU(cuCtxSynchronize)()});
}

CUresult wait(size_t ms) {
  constexpr size_t kStep_ms = 50;
  CUresult result = CU(cuCtxSynchronize)();
  for (size_t waited = 0; waited < ms && result == CUDA_SUCCESS; waited += kStep_ms) {
    sleep_ms(kStep_ms);
    result = CU(cuCtxSynchronize)();
  }
  return result;
}

CUresult take(std::vector<CUdeviceptr> *pieces, size_t bytes, size_t count, CUresult (*one)(CUdeviceptr *, size_t)) {
  for (size_t i = 0; i < count; ++i) {
    CUdeviceptr pointer = 0;
    if (const CUresult result = one(&pointer, bytes)) return result;
    pieces->push_back(pointer);
  }
  return CUDA_SUCCESS;
}

CUresult malloc_one(CUdeviceptr *pointer, size_t bytes) { return CU(cuMemAlloc_v2)(pointer, bytes); }
CUresult managed_one(CUdeviceptr *pointer, size_t bytes) {
  return CU(cuMemAllocManaged)(pointer, bytes, CU_MEM_ATTACH_GLOBAL);
}
CUresult async_one(CUdeviceptr *pointer, size_t bytes) { return CU(cuMemAllocAsync)(pointer, bytes, held.stream); }

CUresult free_linear() {
  CUresult worst = CUDA_SUCCESS;
  for (const CUdeviceptr pointer : held.linear) worst = first_failure({worst, CU(cuMemFree_v2)(pointer)});
  held.linear.clear();
  return worst;
}

CUresult free_async() {
  CUresult worst = CUDA_SUCCESS;
  for (const CUdeviceptr pointer : held.async) worst = first_failure({worst, CU(cuMemFreeAsync)(pointer, held.stream)});
  held.async.clear();
  return first_failure({worst, CU(cuStreamSynchronize)(held.stream)});
}

CUresult trim() {
  CUmemoryPool pool = nullptr;
  if (const CUresult result = CU(cuDeviceGetDefaultMemPool)(&pool, device())) return result;
  return CU(cuMemPoolTrimTo)(pool, 0);
}

CUresult map_physical(size_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  held.mapped_bytes = bytes;
  if (const CUresult result = CU(cuMemCreate)(&held.physical, bytes, &properties, 0)) return result;
  if (const CUresult result = CU(cuMemAddressReserve)(&held.mapped, bytes, 0, 0, 0)) return result;
  if (const CUresult result = CU(cuMemMap)(held.mapped, bytes, 0, held.physical, 0)) return result;
  return CU(cuMemSetAccess)(held.mapped, bytes, &access, 1);
}

CUresult unmap_physical() {
  return first_failure({CU(cuMemUnmap)(held.mapped, held.mapped_bytes), CU(cuMemRelease)(held.physical),
                        CU(cuMemAddressFree)(held.mapped, held.mapped_bytes)});
}

CUresult make_primary() {
  if (const CUresult result = CU(cuDevicePrimaryCtxRetain)(&held.context, device())) return result;
  return CU(cuCtxSetCurrent)(held.context);
}

CUresult load_module() {
  const std::string image = kernels();
  return CU(cuModuleLoadData)(&held.module, image.c_str());
}

CUresult reset() {
  held = {};
  return CU(cuDevicePrimaryCtxReset_v2)(device());
}

CUresult obey(const std::string &verb, size_t bytes, size_t count) {
  if (verb == "init") return CU(cuInit)(0);
  if (verb == "context") return make_primary();
  if (verb == "module") return load_module();
  if (verb == "unload") return CU(cuModuleUnload)(held.module);
  if (verb == "launch") return launch("empty");
  if (verb == "busy") return launch("spin_20ms", bytes / 20);  // milliseconds
  if (verb == "deep") return launch("deep");
  if (verb == "stack") return first_failure({CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, bytes), launch("empty")});
  if (verb == "printf") return first_failure({CU(cuCtxSetLimit)(CU_LIMIT_PRINTF_FIFO_SIZE, bytes), launch("empty")});
  if (verb == "wait") return wait(bytes);  // milliseconds
  if (verb == "malloc") return take(&held.linear, bytes, count, malloc_one);
  if (verb == "managed") return take(&held.linear, bytes, count, managed_one);
  if (verb == "free") return free_linear();
  if (verb == "stream") return CU(cuStreamCreate)(&held.stream, CU_STREAM_NON_BLOCKING);
  if (verb == "async")
    return first_failure({take(&held.async, bytes, count, async_one), CU(cuStreamSynchronize)(held.stream)});
  if (verb == "async-free") return free_async();
  if (verb == "trim") return trim();
  if (verb == "vmm") return map_physical(bytes);
  if (verb == "vmm-free") return unmap_physical();
  if (verb == "reset") return reset();
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

int steps() {
  const char *region = std::getenv("VGPU_REGION");
  std::cout << getpid() << ' ' << (region != nullptr ? region : "-") << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream order(line);
    std::string verb;
    size_t bytes = 0, count = 1;
    order >> verb >> bytes >> count;
    const Clock::time_point start = Clock::now();
    const CUresult result = obey(verb, bytes, count);
    const double seconds = seconds_since(start);
    std::cout << name_of(result) << ' ' << seconds * 1e6 << std::endl;
  }
  return 0;
}

}  // namespace tables
