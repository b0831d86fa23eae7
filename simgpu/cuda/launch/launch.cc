// Kernel launches, with what is asked and set of a kernel before one, and how long it takes. Here are the launches.
#include <set>
#include <span>

#include "simgpu/cuda/graph/capture.h"
#include "simgpu/cuda/launch/kernel_time.h"
#include "simgpu/cuda/launch/prepare.h"
#include "simgpu/cuda/module/library.h"
#include "simgpu/cuda/module/module.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

// Everything a launch is refused for. Limits are those of the device attributes.
CUresult check_shape(const Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                     unsigned bz, unsigned shared) {
  if (gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0) return CUDA_ERROR_INVALID_VALUE;
  if (gy > 65535 || gz > 65535 || gx > 0x7fffffffu || bx > 1024 || by > 1024 || bz > 64)
    return CUDA_ERROR_INVALID_VALUE;
  if (bx * by * bz > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (shared > static_cast<unsigned>(function->max_dynamic_shared)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult capture_kernel(Driver *driver, Stream *stream, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                        unsigned bx, unsigned by, unsigned bz, unsigned shared, void **params, void **extra) {
  auto node = std::make_unique<GraphNode>();
  node->type = CU_GRAPH_NODE_TYPE_KERNEL;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = f;
  kernel.gridDimX = gx;
  kernel.gridDimY = gy;
  kernel.gridDimZ = gz;
  kernel.blockDimX = bx;
  kernel.blockDimY = by;
  kernel.blockDimZ = bz;
  kernel.sharedMemBytes = shared;
  kernel.kernelParams = params;
  kernel.extra = extra;
  set_kernel(node.get(), kernel);
  return capture_node(driver, stream, std::move(node));
}

inline CUresult launch_in(Driver *driver, Context *context, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                          unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream handle, void **params,
                          void **extra, bool per_thread) {
  Function *function = resolve_function(driver, context, f);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = check_shape(function, gx, gy, gz, bx, by, bz, shared)) return result;
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr || stream->context != function->context) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (__builtin_expect(stream->capture != nullptr, 0))
    return capture_kernel(driver, stream, f, gx, gy, gz, bx, by, bz, shared, params, extra);
  if (CUresult result = meet_launch_costs(driver, function)) return result;
  const uint64_t blocks = uint64_t{gx} * gy * gz;
  const uint64_t ns = duration_ns(function, blocks);
  launch_kernel(stream, {ns, ns != 0 ? occupied_sms(function, blocks, uint64_t{bx} * by * bz) : 0});
  return CUDA_SUCCESS;
}

inline CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, CUstream handle, void **params, void **extra, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  return launch_in(driver, context, f, gx, gy, gz, bx, by, bz, shared, handle, params, extra, per_thread);
}

// Where one part of a launch on several devices goes. Null: a stream that nobody made, or whose context has gone.
Context *context_of(const CUDA_LAUNCH_PARAMS &part) {
  const CUstream handle = part.hStream;
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return nullptr;
  auto *stream = reinterpret_cast<Stream *>(handle);
  return stream->magic == kStreamMagic && stream->context->alive ? stream->context : nullptr;
}

bool same_shape(const CUDA_LAUNCH_PARAMS &a, const CUDA_LAUNCH_PARAMS &b) {
  return a.gridDimX == b.gridDimX && a.gridDimY == b.gridDimY && a.gridDimZ == b.gridDimZ &&
         a.blockDimX == b.blockDimX && a.blockDimY == b.blockDimY && a.blockDimZ == b.blockDimZ &&
         a.sharedMemBytes == b.sharedMemBytes;
}

CUresult launch_old(CUfunction f, int width, int height, CUstream stream) {
  auto *function = reinterpret_cast<Function *>(f);
  if (function == nullptr || function->magic != kFunctionMagic) return CUDA_ERROR_INVALID_HANDLE;
  return launch(f, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                static_cast<unsigned>(function->block_x), static_cast<unsigned>(function->block_y),
                static_cast<unsigned>(function->block_z), 0, stream, nullptr, nullptr, false);
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                        unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
                        void **extra) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra, false);
}
CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                             unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
                             void **extra) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra, true);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
                c->hStream, params, extra, false);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
                c->hStream, params, extra, true);
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                                   unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
                                   void **params) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, nullptr, false);
}
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                                        CUstream stream, void **params) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, nullptr, true);
}
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags) {
  constexpr unsigned kKnown = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                              CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
  SIMGPU_DRIVER(driver);
  if (list == nullptr || count == 0 || count > driver->devices.size() || (flags & ~kKnown) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::set<Device *> devices;
  for (const CUDA_LAUNCH_PARAMS &part : std::span(list, count)) {
    Context *context = context_of(part);
    if (context == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!devices.insert(context->device).second || !same_shape(part, list[0])) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const CUDA_LAUNCH_PARAMS &part : std::span(list, count)) {
    if (CUresult result = launch_in(driver, context_of(part), part.function, part.gridDimX, part.gridDimY,
                                    part.gridDimZ, part.blockDimX, part.blockDimY, part.blockDimZ, part.sharedMemBytes,
                                    part.hStream, part.kernelParams, nullptr, false))
      return result;
  }
  return CUDA_SUCCESS;
}
CUresult cuLaunch(CUfunction f) { return launch_old(f, 1, 1, nullptr); }
CUresult cuLaunchGrid(CUfunction f, int width, int height) { return launch_old(f, width, height, nullptr); }
CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
  return launch_old(f, width, height, stream);
}

}  // extern "C"
