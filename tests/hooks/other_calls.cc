// Memory that comes from elsewhere or shows nowhere: other processes, other interfaces, green contexts, heaps, libraries.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"

namespace vgpu::test {

namespace {

// Half of a device's SMs, which the interface wants described in three steps.
CUresult describe_half(CUdevice on, CUdevResourceDesc *description) {
  CUdevResource all = {}, half = {};
  CUresult result = DRIVER(cuDeviceGetDevResource)(on, &all, CU_DEV_RESOURCE_TYPE_SM);
  unsigned groups = 1;
  if (result == CUDA_SUCCESS)
    result = DRIVER(cuDevSmResourceSplitByCount)(&half, &groups, &all, nullptr, 0, all.sm.smCount / 2);
  return result == CUDA_SUCCESS ? DRIVER(cuDevResourceGenerateDesc)(description, &half, 1) : result;
}

// "LIBRARY" -> its kernel, or the function of that.
CUresult kernel_of(CUlibrary library, CUkernel *kernel) {
  return DRIVER(cuLibraryGetKernel)(kernel, library, "nothing");
}

int get_variable(Arguments &in, Values &out, decltype(&cuLibraryGetGlobal) function) {
  const auto library = handle<CUlibrary>(in);
  std::size_t bytes = 0;
  return answer<CUdeviceptr>(out, [&](CUdeviceptr *p) { return function(p, &bytes, library, "table"); });
}

constexpr Call kCalls[] = {
    CALL(cuIpcGetMemHandle,
         {
           CUipcMemHandle shared = {};
           const CUresult result = DRIVER(cuIpcGetMemHandle)(&shared, number(in));
           write_hex(shared, out);
           return result;
         }),
    CALL(cuIpcOpenMemHandle_v2,
         {
           const auto shared = read_hex<CUipcMemHandle>(in);
           return answer<CUdeviceptr>(out, [&](CUdeviceptr *p) {
             return DRIVER(cuIpcOpenMemHandle_v2)(p, shared, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
           });
         }),
    CALL(cuIpcOpenMemHandle,
         {
           const auto shared = read_hex<CUipcMemHandle>(in);
           return answer<CUdeviceptr>(out, [&](CUdeviceptr *p) {
             return DRIVER(cuIpcOpenMemHandle)(p, shared, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
           });
         }),
    CALL(cuIpcCloseMemHandle, { return DRIVER(cuIpcCloseMemHandle)(number(in)); }),
    CALL(cuImportExternalMemory,
         {
           CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted = {};
           wanted.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
           wanted.handle.fd = next<int>(in);
           wanted.size = number(in);
           return answer<CUexternalMemory>(
               out, [&](CUexternalMemory *m) { return DRIVER(cuImportExternalMemory)(m, &wanted); });
         }),
    CALL(cuExternalMemoryGetMappedBuffer,
         {
           const auto memory = handle<CUexternalMemory>(in);
           CUDA_EXTERNAL_MEMORY_BUFFER_DESC wanted = {};
           wanted.size = number(in);
           return answer<CUdeviceptr>(
               out, [&](CUdeviceptr *p) { return DRIVER(cuExternalMemoryGetMappedBuffer)(p, memory, &wanted); });
         }),
    CALL(cuDestroyExternalMemory, { return DRIVER(cuDestroyExternalMemory)(handle<CUexternalMemory>(in)); }),
    // Memory of another interface, as far as a descriptor shows it.
    CALL(memfd,
         {
           const int fd = memfd_create("external", MFD_CLOEXEC | MFD_ALLOW_SEALING);
           out << ' ' << fd;
           return ftruncate(fd, static_cast<off_t>(number(in)));
         }),
    // "PID FD": a descriptor of another process, as if it had been sent.
    CALL(take,
         {
           const auto process = static_cast<int>(syscall(SYS_pidfd_open, next<int>(in), 0));
           const auto fd = static_cast<int>(syscall(SYS_pidfd_getfd, process, next<int>(in), 0));
           close(process);
           out << ' ' << fd;
           return fd >= 0 ? 0 : -1;
         }),
    CALL(close, { return close(next<int>(in)); }),

    CALL(cuGreenCtxCreate,
         {
           const auto on = device(in);
           CUdevResourceDesc half = nullptr;
           if (const CUresult result = describe_half(on, &half); result != CUDA_SUCCESS) return result;
           return answer<CUgreenCtx>(out, [&](CUgreenCtx *green) {
             return DRIVER(cuGreenCtxCreate)(green, half, on, CU_GREEN_CTX_DEFAULT_STREAM);
           });
         }),
    CALL(cuGreenCtxDestroy, { return DRIVER(cuGreenCtxDestroy)(handle<CUgreenCtx>(in)); }),
    CALL(cuCtxFromGreenCtx,
         {
           const auto green = handle<CUgreenCtx>(in);
           return answer<CUcontext>(out, [&](CUcontext *context) { return DRIVER(cuCtxFromGreenCtx)(context, green); });
         }),
    CALL(cuCtxSetLimit,
         {
           const auto limit = static_cast<CUlimit>(next<int>(in));
           return DRIVER(cuCtxSetLimit)(limit, number(in));
         }),

    CALL(cuLibraryGetModule,
         {
           const auto library = handle<CUlibrary>(in);
           return answer<CUmodule>(out, [&](CUmodule *module) { return DRIVER(cuLibraryGetModule)(module, library); });
         }),
    CALL(cuLibraryGetGlobal, { return get_variable(in, out, DRIVER(cuLibraryGetGlobal)); }),
    CALL(cuLibraryGetManaged, { return get_variable(in, out, DRIVER(cuLibraryGetManaged)); }),
    CALL(cuKernelGetFunction,
         {
           CUkernel kernel = nullptr;
           if (const CUresult result = kernel_of(handle<CUlibrary>(in), &kernel); result != CUDA_SUCCESS) return result;
           return answer<CUfunction>(out, [&](CUfunction *f) { return DRIVER(cuKernelGetFunction)(f, kernel); });
         }),
    CALL(cuModuleGetFunction,
         {
           const auto module = handle<CUmodule>(in);
           return answer<CUfunction>(out,
                                     [&](CUfunction *f) { return DRIVER(cuModuleGetFunction)(f, module, "nothing"); });
         }),
    CALL(cuLibraryGetKernel,
         {
           const auto library = handle<CUlibrary>(in);
           return answer<CUkernel>(out, [&](CUkernel *k) { return DRIVER(cuLibraryGetKernel)(k, library, "nothing"); });
         }),
    CALL(cuFuncLoad, { return DRIVER(cuFuncLoad)(handle<CUfunction>(in)); }),
};

}  // namespace

std::span<const Call> other_calls() { return kCalls; }

const Call *find_call(const std::string &symbol) {
  for (const auto &rows :
       {pool_calls(), physical_calls(), graph_calls(), launch_calls(), stream_calls(), other_calls()}) {
    for (const Call &row : rows) {
      if (symbol == row.symbol) return &row;
    }
  }
  return nullptr;
}

}  // namespace vgpu::test
