// Kernel attributes and occupancy. The numbers follow from a kernel of 32 registers per thread and its shared memory.
#include <algorithm>

#include "simgpu/cuda/launch/prepare.h"
#include "simgpu/cuda/module/library.h"
#include "simgpu/cuda/module/module.h"

using namespace simgpu;

namespace {

constexpr int kRegisters = 32;
constexpr int kThreadsPerSm = 2048;
constexpr int kBlocksPerSm = 32;
constexpr int kSharedPerSm = 167936;

int blocks_per_sm(const Function &function, int block_size, size_t dynamic_shared) {
  if (block_size <= 0 || block_size > 1024) return 0;
  int warps = (block_size + 31) / 32;
  int blocks = std::min(kBlocksPerSm, kThreadsPerSm / (warps * 32));
  size_t shared = function.kernel.shared_bytes + dynamic_shared + 1024;
  return std::min<int>(blocks, static_cast<int>(kSharedPerSm / shared));
}

// Clusters of blocks came with compute capability 9.0; eight blocks are what a program may count on.
constexpr unsigned kSmsTogether = 16;
unsigned largest_cluster(const DeviceFacts &facts) { return facts.compute_major >= 9 ? 8 : 1; }

// Blocks in a cluster of such a launch: 1 unless it says otherwise.
unsigned cluster_size(const CUlaunchConfig &config) {
  for (unsigned i = 0; i < config.numAttrs && config.attrs != nullptr; i++)
    if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto &dimension = config.attrs[i].value.clusterDim;
      return dimension.x * dimension.y * dimension.z;
    }
  return 1;
}

CUresult get_attribute(int *value, CUfunction_attribute attribute, const ImageKernel &kernel, int dynamic,
                       int carveout) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(kernel.shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(kernel.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = kRegisters;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 80;
      break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = dynamic;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = carveout;
      break;
    default:
      if (attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;
  }
  return CUDA_SUCCESS;
}

#define FUNCTION(driver, context, function, handle)               \
  SIMGPU_CONTEXT(driver, context);                                \
  Function *function = resolve_function(driver, context, handle); \
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE

}  // namespace

extern "C" {

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
  FUNCTION(driver, context, function, handle);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return get_attribute(value, attribute, function->kernel, function->max_dynamic_shared, function->carveout);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  FUNCTION(driver, context, function, handle);
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > 166912) return CUDA_ERROR_INVALID_VALUE;
    function->max_dynamic_shared = value;
  } else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    function->carveout = value;
  } else if (attribute < CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT || attribute >= CU_FUNC_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  FUNCTION(driver, context, function, handle);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  FUNCTION(driver, context, function, handle);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle) {
  FUNCTION(driver, context, function, handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(function->module);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction handle) {
  FUNCTION(driver, context, function, handle);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->kernel.name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size) {
  FUNCTION(driver, context, function, handle);
  if (offset == nullptr || index >= function->kernel.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->kernel.parameters[index].first;
  if (size != nullptr) *size = function->kernel.parameters[index].second;
  return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle) {
  FUNCTION(driver, context, function, handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  *state = function->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction handle) {
  FUNCTION(driver, context, function, handle);
  bool fresh;
  {
    DriverLock lock(driver->mutex);
    if (CUresult result = load_function(driver, function, &fresh)) return result;
  }
  if (fresh) spend(context->device, context->device->facts().function_ns);
  return CUDA_SUCCESS;
}

// Launching as it was before CUDA 4: the shape belongs to the function, parameters are set one by one.
CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  FUNCTION(driver, context, function, handle);
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  function->block_x = x;
  function->block_y = y;
  function->block_z = z;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int) {
  FUNCTION(driver, context, function, handle);
  return CUDA_SUCCESS;
}
CUresult cuParamSetSize(CUfunction handle, unsigned int) {
  FUNCTION(driver, context, function, handle);
  return CUDA_SUCCESS;
}
CUresult cuParamSeti(CUfunction handle, int, unsigned int) {
  FUNCTION(driver, context, function, handle);
  return CUDA_SUCCESS;
}
CUresult cuParamSetf(CUfunction handle, int, float) {
  FUNCTION(driver, context, function, handle);
  return CUDA_SUCCESS;
}
CUresult cuParamSetv(CUfunction handle, int, void *, unsigned int) {
  FUNCTION(driver, context, function, handle);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice) {
  auto *kernel = reinterpret_cast<Kernel *>(handle);
  if (kernel == nullptr || kernel->magic != kKernelMagic) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return get_attribute(value, attribute, kernel->image, 48 << 10, -1);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int size, size_t shared) {
  FUNCTION(driver, context, function, handle);
  if (blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *blocks = blocks_per_sm(*function, size, shared);
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int size, size_t shared,
                                                              unsigned int flags) {
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, handle, size, shared);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction handle, CUoccupancyB2DSize dynamic,
                                          size_t shared, int limit) {
  FUNCTION(driver, context, function, handle);
  if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit <= 0 || limit > 1024) limit = 1024;
  int best = 0;
  for (int size = 32; size <= limit; size += 32) {
    int threads = size * blocks_per_sm(*function, size, dynamic != nullptr ? dynamic(size) : shared);
    if (threads < best || threads == 0) continue;
    best = threads;
    *block = size;
  }
  if (best == 0) return CUDA_ERROR_INVALID_VALUE;
  *grid = best / *block * static_cast<int>(context->device->facts().sm_count);
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle, CUoccupancyB2DSize dynamic,
                                                   size_t shared, int limit, unsigned int) {
  return cuOccupancyMaxPotentialBlockSize(grid, block, handle, dynamic, shared, limit);
}
// A cluster's blocks run at the same time on neighbouring SMs.
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config) {
  FUNCTION(driver, context, function, handle);
  if (clusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const DeviceFacts &facts = context->device->facts();
  const unsigned size = cluster_size(*config);
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > largest_cluster(facts)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
  const auto blocks = static_cast<unsigned>(
      blocks_per_sm(*function, static_cast<int>(std::min(threads, 2048u)), config->sharedMemBytes));
  unsigned found = 0;
  for (unsigned left = facts.sm_count; left > 0; left -= std::min(left, kSmsTogether))
    found += std::min(left, kSmsTogether) * blocks / size;
  *clusters = static_cast<int>(found);
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle, const CUlaunchConfig *config) {
  FUNCTION(driver, context, function, handle);
  if (size == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *size = static_cast<int>(largest_cluster(context->device->facts()));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks, int) {
  FUNCTION(driver, context, function, handle);
  if (bytes == nullptr || blocks <= 0) return CUDA_ERROR_INVALID_VALUE;
  *bytes = static_cast<size_t>(kSharedPerSm / blocks - 1024) - function->kernel.shared_bytes;
  return CUDA_SUCCESS;
}

}  // extern "C"
