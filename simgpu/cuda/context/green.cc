#include "simgpu/cuda/context/green.h"

#include <algorithm>
#include <memory>

#include "simgpu/cuda/context/context.h"
#include "simgpu/cuda/stream/stream.h"

struct CUdevResourceDesc_st {
  simgpu::Device *device;
  unsigned sms;
};

namespace simgpu {

GreenContext *valid_green(CUgreenCtx handle) {
  auto *green = reinterpret_cast<GreenContext *>(handle);
  return green != nullptr && green->magic == kGreenMagic ? green : nullptr;
}

namespace {

constexpr unsigned kGroup = 2;              // SMs come in groups of this size
constexpr unsigned kLeast = 4;              // and a share has at least so many
constexpr uint64_t kOverhead = 4ull << 20;  // what a green context takes beside the primary context

// What a resource says of itself; the padding holds which device it is a part of.
CUdevResource resource_of(Device *device, unsigned sms) {
  CUdevResource resource{};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource.sm.smCount = sms;
  resource.sm.minSmPartitionSize = kLeast;
  resource.sm.smCoscheduledAlignment = kGroup;
  __builtin_memcpy(resource._internal_padding, &device, sizeof device);
  return resource;
}

Device *device_of(const CUdevResource &resource) {
  Device *device;
  __builtin_memcpy(&device, resource._internal_padding, sizeof device);
  return device;
}

CUresult sm_resource(Device *device, unsigned sms, CUdevResource *resource, CUdevResourceType type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = resource_of(device, sms);
  return CUDA_SUCCESS;
}

// Expects the lock. The face shows the primary context's device and shares its fate, nothing more.
Context *make_face(Driver *driver, Context *primary) {
  auto *face = new Context;
  face->home = primary;
  face->device = primary->device;
  face->flags = primary->flags;
  face->api_version = primary->api_version;
  face->primary = true;
  face->id = driver->next_id++;
  return face;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource *resource, CUdevResourceType type) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return sm_resource(device, device->facts().sm_count, resource, type);
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  Context *context = handle != nullptr ? valid_context(handle) : top_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  unsigned sms = context->green != nullptr ? context->green->sms : context->device->facts().sm_count;
  return sm_resource(context->device, sms, resource, type);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  GreenContext *green = valid_green(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return sm_resource(green->device, green->sms, resource, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned int, unsigned int least) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (groups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  auto share = static_cast<unsigned>(round_up(std::max(least, kLeast), kGroup));
  unsigned possible = input->sm.smCount / share;
  if (possible == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  unsigned made = result != nullptr ? std::min(*groups, possible) : possible;
  for (unsigned i = 0; result != nullptr && i < made; i++) result[i] = resource_of(device_of(*input), share);
  if (remaining != nullptr) {
    *remaining = resource_of(device_of(*input), input->sm.smCount - made * share);
    if (remaining->sm.smCount == 0) remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
  }
  *groups = made;
  return CUDA_SUCCESS;
}

// A descriptor lives as long as the process, as the interface has no call to destroy one.
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned int count) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (out == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned sms = 0;
  for (unsigned i = 0; i < count; i++) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (device_of(resources[i]) != device_of(resources[0])) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    sms += resources[i].sm.smCount;
  }
  static std::vector<std::unique_ptr<CUdevResourceDesc_st>> all;
  DriverLock lock(driver->mutex);
  all.push_back(std::make_unique<CUdevResourceDesc_st>(CUdevResourceDesc_st{device_of(resources[0]), sms}));
  *out = all.back().get();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc description, CUdevice ordinal, unsigned int flags) {
  SIMGPU_DRIVER(driver);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr || description == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM || description->device != device)
    return CUDA_ERROR_INVALID_VALUE;
  CUcontext primary;
  if (CUresult result = cuDevicePrimaryCtxRetain(&primary, ordinal)) return result;
  auto *green = new GreenContext;
  {
    DriverLock lock(driver->mutex);
    if (take_blocks(driver, device, kOverhead, BlockUse::kContext, &green->overhead)) {
      green->device = device;
      green->sms = description->sms;
      green->id = driver->next_id++;
      green->face = make_face(driver, valid_context(primary));
      green->face->green = green;
      *out = reinterpret_cast<CUgreenCtx>(green);
      return CUDA_SUCCESS;
    }
  }
  delete green;
  cuDevicePrimaryCtxRelease_v2(ordinal);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  SIMGPU_DRIVER(driver);
  GreenContext *green = valid_green(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUdevice ordinal = green->device->ordinal;
  {
    DriverLock lock(driver->mutex);
    green->device->blocks.give(green->overhead, false);
    green->face->alive = false;
    green->face->green = nullptr;
    driver->dead_contexts.push_back(green->face);
    green->magic = 0;
    delete green;
  }
  return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx handle) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  GreenContext *green = valid_green(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(green->face);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  GreenContext *green = valid_green(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = green->id;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx handle, unsigned int flags, int priority) {
  SIMGPU_DRIVER(driver);
  GreenContext *green = valid_green(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  if (!green->face->home->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  DriverLock lock(driver->mutex);
  *out = reinterpret_cast<CUstream>(make_stream(driver, green->face->home, flags, std::clamp(priority, -5, 0)));
  return CUDA_SUCCESS;
}

}  // extern "C"
