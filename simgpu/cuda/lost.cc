// A device that fell off the bus: every call that reaches it fails, and goes on failing in the processes that saw it,
// even when the device has come back.
#include <algorithm>
#include <cstring>
#include <vector>

#include "simgpu/cuda/core.h"
#include "simgpu/node/gate.h"

namespace simgpu {
namespace {

// What the driver knows by heart, or keeps in the process.
constexpr const char *kNeedNoDevice[] = {"cuInit",
                                         "cuDriverGetVersion",
                                         "cuGetError",
                                         "cuGetProcAddress",
                                         "cuDeviceGet",
                                         "cuDeviceTotalMem",
                                         "cuDeviceComputeCapability",
                                         "cuDeviceCanAccessPeer",
                                         "cuCtxGetCurrent",
                                         "cuCtxSetCurrent",
                                         "cuCtxPushCurrent",
                                         "cuCtxPopCurrent",
                                         "cuCtxGetDevice",
                                         "cuCtxGetFlags",
                                         "cuCtxGetId",
                                         "cuCtxGetApiVersion",
                                         "cuDevicePrimaryCtxGetState",
                                         "cuThreadExchangeStreamCaptureMode"};

bool needs_device(unsigned function) {
  static const auto *needs = [] {
    auto *all = new std::vector<bool>;
    for (unsigned i = 0; i < kGates; i++)
      all->push_back(std::none_of(std::begin(kNeedNoDevice), std::end(kNeedNoDevice),
                                  [&](const char *name) { return strncmp(kGateNames[i], name, strlen(name)) == 0; }));
    return all;
  }();
  return (*needs)[function];
}

Device *device_of_call(Driver *driver, int ordinal) {
  if (ordinal != kCurrent) return driver->device(ordinal);
  Context *context = top_context();
  return context != nullptr ? context->device : nullptr;
}

}  // namespace

int lost_result(unsigned function, int ordinal) {
  Driver *driver = g_driver.load(std::memory_order_acquire);
  if (driver == nullptr || !needs_device(function)) return CUDA_SUCCESS;
  Device *device = device_of_call(driver, ordinal);
  if (device == nullptr) return CUDA_SUCCESS;
  if (device->lost()) device->was_lost.store(true, std::memory_order_relaxed);
  return device->was_lost.load(std::memory_order_relaxed) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

bool needs_every_call() { return false; }

}  // namespace simgpu
