// What the code that nvcc generates calls: fat binaries and their kernels and variables are noted when the program starts
// and loaded when they are first needed; a launch finds its shape where the <<<>>> put it.
#include <map>
#include <mutex>
#include <vector>

#include "simgpu/runtime/driver.h"

namespace simrt {
namespace {

struct Binary {
  const void *image = nullptr;
  CUlibrary library = nullptr;
};

struct Kernel {
  Binary *binary = nullptr;
  std::string name;
  CUkernel kernel = nullptr;
};

struct Variable {
  Binary *binary = nullptr;
  std::string name;
  void **managed = nullptr;  // where the program expects the address
};

struct Registry {
  std::mutex mutex;
  std::map<const void *, Kernel> kernels;
  std::map<const void *, Variable> variables;
};

Registry &registry() {
  static auto *all = new Registry;  // programs unregister during exit
  return *all;
}

struct Shape {
  dim3 grid, block;
  size_t shared;
  void *stream;
};
thread_local std::vector<Shape> t_shapes;

cudaError_t load(Binary *binary) {
  if (binary->library != nullptr) return cudaSuccess;
  return DRIVER(cuLibraryLoadData, cuLibraryLoadData, &binary->library, binary->image, nullptr, nullptr, 0, nullptr,
                nullptr, 0);
}

}  // namespace

cudaError_t find_kernel(const void *host_function, CUkernel *kernel) {
  std::lock_guard<std::mutex> guard(registry().mutex);
  auto it = registry().kernels.find(host_function);
  if (it == registry().kernels.end()) return remember(cudaErrorInvalidDeviceFunction);
  if (it->second.kernel == nullptr) {
    if (cudaError_t error = load(it->second.binary)) return error;
    if (cudaError_t error = DRIVER(cuLibraryGetKernel, cuLibraryGetKernel, &it->second.kernel,
                                   it->second.binary->library, it->second.name.c_str()))
      return error;
  }
  *kernel = it->second.kernel;
  return cudaSuccess;
}

cudaError_t find_variable(const void *host_variable, CUdeviceptr *address, size_t *bytes) {
  std::lock_guard<std::mutex> guard(registry().mutex);
  auto it = registry().variables.find(host_variable);
  if (it == registry().variables.end()) return remember(cudaErrorInvalidSymbol);
  if (cudaError_t error = load(it->second.binary)) return error;
  return DRIVER(cuLibraryGetGlobal, cuLibraryGetGlobal, address, bytes, it->second.binary->library,
                it->second.name.c_str());
}

}  // namespace simrt

using namespace simrt;

extern "C" {

void **__cudaRegisterFatBinary(void *image) {
  auto *binary = new Binary;
  binary->image = image;
  return reinterpret_cast<void **>(binary);
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **handle) {
  // The driver frees everything with the process; a program that still uses the device while it exits is left in peace.
  (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *,
                            dim3 *, int *) {
  std::lock_guard<std::mutex> guard(registry().mutex);
  registry().kernels[host] = {reinterpret_cast<Binary *>(handle), name, nullptr};
}
void __cudaRegisterVar(void **handle, char *host, char *, const char *name, int, size_t, int, int) {
  std::lock_guard<std::mutex> guard(registry().mutex);
  registry().variables[host] = {reinterpret_cast<Binary *>(handle), name, nullptr};
}
void __cudaRegisterManagedVar(void **handle, void **host, char *, const char *name, int, size_t, int, int) {
  std::lock_guard<std::mutex> guard(registry().mutex);
  registry().variables[host] = {reinterpret_cast<Binary *>(handle), name, host};
}

// Called before the program first touches a managed variable: from then on the program's pointer leads to it.
char __cudaInitModule(void **handle) {
  if (current() != cudaSuccess) return 0;
  std::lock_guard<std::mutex> guard(registry().mutex);
  for (auto &[host, variable] : registry().variables) {
    if (variable.managed == nullptr || reinterpret_cast<void **>(variable.binary) != handle) continue;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (load(variable.binary) != cudaSuccess) return 0;
    if (DRIVER(cuLibraryGetGlobal, cuLibraryGetGlobal, &address, &bytes, variable.binary->library,
               variable.name.c_str()) != cudaSuccess)
      return 0;
    *variable.managed = reinterpret_cast<void *>(address);
  }
  return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st *stream) {
  t_shapes.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  if (t_shapes.empty()) return remember(cudaErrorMissingConfiguration);
  *grid = t_shapes.back().grid;
  *block = t_shapes.back().block;
  *shared = t_shapes.back().shared;
  *static_cast<void **>(stream) = t_shapes.back().stream;
  t_shapes.pop_back();
  return cudaSuccess;
}

// The handle a launch uses is the host function's address: it is resolved when the launch happens, not when the program
// starts, so that a program without a device starts all the same.
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(host));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
  SIMRT_CURRENT();
  CUkernel kernel;
  if (cudaError_t error = find_kernel(host, &kernel)) return error;
  return DRIVER(cuLaunchKernel, cuLaunchKernel, reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x,
                block.y, block.z, static_cast<unsigned>(shared), stream, arguments, nullptr);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, arguments, shared, stream);
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  SIMRT_CURRENT();
  CUdeviceptr device = 0;
  size_t bytes = 0;
  cudaError_t error = find_variable(symbol, &device, &bytes);
  if (error == cudaSuccess) *address = reinterpret_cast<void *>(device);
  return error;
}
cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
  SIMRT_CURRENT();
  CUdeviceptr device = 0;
  return find_variable(symbol, &device, bytes);
}

}  // extern "C"
