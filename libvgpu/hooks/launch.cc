// Kernel launches: metered where the job has an SM limit. Without one a program gets the driver's own functions, and one
// that was linked with them comes through here and goes straight on.
#include "sm/metered.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

using std::memory_order_relaxed;

sm::Work kernel(CUfunction function, std::uint64_t grid_x, unsigned grid_y, unsigned grid_z, std::uint64_t block_x,
                unsigned block_y, unsigned block_z) {
  return {function, grid_x * grid_y * grid_z, block_x * block_y * block_z};
}

sm::Work kernel(CUfunction function, const CUlaunchConfig *config) {
  if (config == nullptr) return {function, 1, 1};
  return kernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                config->blockDimZ);
}

CUstream stream_of(const CUlaunchConfig *config) { return config != nullptr ? config->hStream : nullptr; }

// One after another: what the first waits for cannot be what the second holds, because nothing is held.
class MultiLaunch {
 public:
  MultiLaunch(const CUDA_LAUNCH_PARAMS *list, unsigned count)
      : list_(list), count_(list != nullptr && count <= kMaxDevices ? count : 0) {
    for (unsigned i = 0; i < count_; ++i) {
      in_context(i, [&](const CUDA_LAUNCH_PARAMS &one) {
        const sm::Work work =
            kernel(one.function, one.gridDimX, one.gridDimY, one.gridDimZ, one.blockDimX, one.blockDimY, one.blockDimZ);
        if (!sm::pay(work, one.hStream)) launches_[i] = sm::Launch(work, one.hStream);
      });
    }
  }
  CUresult finish(CUresult result) {
    for (unsigned i = 0; i < count_; ++i) {
      in_context(i, [&](const CUDA_LAUNCH_PARAMS &) { launches_[i].finish(result); });
    }
    return result;
  }

 private:
  template <typename Work>
  void in_context(unsigned i, Work work) {
    CUcontext context = nullptr;
    if (REAL(cuStreamGetCtx)(list_[i].hStream, &context) != CUDA_SUCCESS) return;
    if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return;
    work(list_[i]);
    REAL(cuCtxPopCurrent_v2)(&context);
  }

  const CUDA_LAUNCH_PARAMS *list_;
  unsigned count_;
  sm::Launch launches_[kMaxDevices];
};

using LaunchKernel = decltype(&cuLaunchKernel);

// cuLaunchKernel is the one that matters. Where a launch goes is found out with the first one, and is a jump
// from then on, with all arguments where they are.
CUresult launch_first(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                      unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                      CUstream stream, void **params, void **extra);

// Relaxed: code was there before its address.
constinit std::atomic<LaunchKernel> launch_target{launch_first};

LaunchKernel driver_launch() {
  return reinterpret_cast<LaunchKernel>(
      real_pointers[static_cast<unsigned>(Symbol::cuLaunchKernel)].load(memory_order_relaxed));
}

// The few launches that the thread's credit does not pay for.
[[gnu::noinline]] CUresult launch_unpaid(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                         unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                         unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                         void **params, void **extra) {
  sm::Launch launch(kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z), stream);
  return launch.finish(driver_launch()(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                                       stream, params, extra));
}

CUresult launch_in_context(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                           unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                           CUstream stream, void **params, void **extra) {
  const sm::Work work = kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z);
  const bool paid = sm::spend_in_context(sm::Costs::key(work.function, work.blocks, work.threads), stream);
  return (paid ? driver_launch() : launch_unpaid)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                                  shared_bytes, stream, params, extra);
}

// Calls nothing, so that all arguments stay where they are.
CUresult launch_on_only_device(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z,
                               unsigned int shared_bytes, CUstream stream, void **params, void **extra) {
  const bool paid = sm::spend_on_fast_path(kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z), stream);
  return (paid ? driver_launch() : launch_in_context)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                                      shared_bytes, stream, params, extra);
}

CUresult launch_first(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                      unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                      CUstream stream, void **params, void **extra) {
  if (real_pointer(Symbol::cuLaunchKernel) == nullptr) return CUDA_ERROR_NOT_FOUND;
  const LaunchKernel target = !launches_are_metered() ? driver_launch()
                              : sm::sees_one_device() ? launch_on_only_device
                                                      : launch_in_context;
  launch_target.store(target, memory_order_relaxed);
  return target(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra);
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **params, void **extra) {
  return launch_target.load(memory_order_relaxed)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                                  shared_bytes, stream, params, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                             unsigned int block_x, unsigned int block_y, unsigned int block_z,
                             unsigned int shared_bytes, CUstream stream, void **params, void **extra) {
  return metered(kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z), per_thread(stream), [&] {
    return REAL(cuLaunchKernel_ptsz)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                                     params, extra);
  });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  return metered(kernel(function, config), stream_of(config),
                 [&] { return REAL(cuLaunchKernelEx)(config, function, params, extra); });
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  return metered(kernel(function, config), per_thread(stream_of(config)),
                 [&] { return REAL(cuLaunchKernelEx_ptsz)(config, function, params, extra); });
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                   unsigned int shared_bytes, CUstream stream, void **params) {
  return metered(kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z), stream, [&] {
    return REAL(cuLaunchCooperativeKernel)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                                           stream, params);
  });
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                        void **params) {
  return metered(kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z), per_thread(stream), [&] {
    return REAL(cuLaunchCooperativeKernel_ptsz)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                                shared_bytes, stream, params);
  });
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags) {
  if (!launches_are_metered()) return REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags);
  MultiLaunch launch(list, count);
  return launch.finish(REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags));
}

CUresult cuLaunch(CUfunction function) {
  return sm::metered({function, 1, 0}, nullptr, [&] { return REAL(cuLaunch)(function); });
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  return metered(kernel(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, 0, 0, 0), nullptr,
                 [&] { return REAL(cuLaunchGrid)(function, width, height); });
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return metered(kernel(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, 0, 0, 0), stream,
                 [&] { return REAL(cuLaunchGridAsync)(function, width, height, stream); });
}

}  // extern "C"
