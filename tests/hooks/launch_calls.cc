// Every way to launch a kernel: "SYMBOL TIME COUNT", where the kernel's name tells the simulated device how long it takes.
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <map>

#include "calls.h"

namespace vgpu::test {

namespace {

std::string ptx_of(const std::string &name) {
  return ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry " + name + "()\n{\n  ret;\n}\n";
}

}  // namespace

CUfunction kernel_of(const std::string &duration) {
  static std::map<std::string, CUfunction> known;
  CUfunction &function = known[duration];
  if (function != nullptr) return function;
  const std::string name = "kernel_" + duration;
  CUmodule module = nullptr;
  if (DRIVER(cuModuleLoadData)(&module, ptx_of(name).c_str()) == CUDA_SUCCESS)
    DRIVER(cuModuleGetFunction)(&function, module, name.c_str());
  return function;
}

CUkernel library_kernel_of(const std::string &duration) {
  static std::map<std::string, CUkernel> known;
  CUkernel &kernel = known[duration];
  if (kernel != nullptr) return kernel;
  const std::string name = "kernel_" + duration, ptx = ptx_of(name);
  CUlibrary library = nullptr;
  if (DRIVER(cuLibraryLoadData)(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) == CUDA_SUCCESS)
    DRIVER(cuLibraryGetKernel)(&kernel, library, name.c_str());
  return kernel;
}

namespace {

template <typename Launch>
int launch_all(Arguments &in, Launch launch) {
  const CUfunction function = kernel_of(next<std::string>(in));
  CUresult result = CUDA_SUCCESS;
  for (std::uint64_t left = number(in); left > 0 && result == CUDA_SUCCESS; --left) result = launch(function);
  return result;
}

CUlaunchConfig one_warp() {
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  return config;
}

// Its part of a launch on several devices, in a context and a stream of its own.
CUresult make_part(CUdevice ordinal, const std::string &duration, CUDA_LAUNCH_PARAMS *part) {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  const std::string name = "kernel_" + duration;
  CUresult result = DRIVER(cuCtxCreate_v2)(&context, 0, ordinal);
  if (result == CUDA_SUCCESS) result = DRIVER(cuModuleLoadData)(&module, ptx_of(name).c_str());
  if (result == CUDA_SUCCESS) result = DRIVER(cuModuleGetFunction)(&part->function, module, name.c_str());
  if (result == CUDA_SUCCESS) result = DRIVER(cuStreamCreate)(&part->hStream, CU_STREAM_NON_BLOCKING);
  part->gridDimX = part->gridDimY = part->gridDimZ = part->blockDimY = part->blockDimZ = 1;
  part->blockDimX = 32;
  return result;
}

int launch_on_two_devices(const std::string &duration, std::uint64_t count) {
  CUDA_LAUNCH_PARAMS parts[2] = {};
  CUresult result = CUDA_SUCCESS;
  for (int device = 0; device < 2 && result == CUDA_SUCCESS; ++device) {
    result = make_part(device, duration, &parts[device]);
  }
  for (; count > 0 && result == CUDA_SUCCESS; --count) {
    result = DRIVER(cuLaunchCooperativeKernelMultiDevice)(parts, 2, 0);
  }
  for (const CUDA_LAUNCH_PARAMS &part : parts) {
    if (result == CUDA_SUCCESS) result = DRIVER(cuStreamSynchronize)(part.hStream);
  }
  return result;
}

std::atomic<unsigned> alarms{0};

int alarm_every(std::uint64_t ms, Values &out) {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++alarms; };
  action.sa_flags = SA_RESTART;  // for this program's own reading between two calls; sleeps are never restarted
  sigaction(SIGALRM, &action, nullptr);
  const auto us = static_cast<suseconds_t>(1000 * ms);
  const itimerval interval = {{0, us}, {0, us}};
  out << ' ' << alarms.load();
  return setitimer(ITIMER_REAL, &interval, nullptr);
}

#define LAUNCH(symbol, ...) \
  CALL(symbol, { return launch_all(in, [](CUfunction kernel) { return DRIVER(symbol)(__VA_ARGS__); }); })

constexpr Call kCalls[] = {
    LAUNCH(cuLaunchKernel, kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
    LAUNCH(cuLaunchKernel_ptsz, kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
    CALL(cuLaunchKernelEx,
         {
           const CUlaunchConfig config = one_warp();
           return launch_all(in, [&](CUfunction f) { return DRIVER(cuLaunchKernelEx)(&config, f, nullptr, nullptr); });
         }),
    CALL(cuLaunchKernelEx_ptsz,
         {
           const CUlaunchConfig config = one_warp();
           return launch_all(in,
                             [&](CUfunction f) { return DRIVER(cuLaunchKernelEx_ptsz)(&config, f, nullptr, nullptr); });
         }),
    LAUNCH(cuLaunchCooperativeKernel, kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr),
    LAUNCH(cuLaunchCooperativeKernel_ptsz, kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr),
    CALL(cuLaunchCooperativeKernelMultiDevice,
         {
           const std::string duration = next<std::string>(in);
           return launch_on_two_devices(duration, number(in));
         }),
    LAUNCH(cuLaunch, kernel),
    LAUNCH(cuLaunchGrid, kernel, 1, 1),
    LAUNCH(cuLaunchGridAsync, kernel, 1, 1, nullptr),
    // A graph of one such kernel, by capture. Answers what can be launched.
    CALL(kernel_graph,
         {
           CUstream stream = nullptr;
           CUgraph graph = nullptr;
           const CUfunction kernel = kernel_of(next<std::string>(in));
           int result = DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
           if (result == 0) result = DRIVER(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
           if (result == 0) result = DRIVER(cuLaunchKernel)(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
           if (result == 0) result = DRIVER(cuStreamEndCapture)(stream, &graph);
           if (result != 0) return result;
           return answer<CUgraphExec>(
               out, [&](CUgraphExec *exec) { return DRIVER(cuGraphInstantiateWithFlags)(exec, graph, 0); });
         }),
    // "MILLISECONDS": a signal every so often, and 0 for no more. Answers how many there were.
    CALL(alarms, { return alarm_every(number(in), out); }),
};

}  // namespace

std::span<const Call> launch_calls() { return kCalls; }

}  // namespace vgpu::test
