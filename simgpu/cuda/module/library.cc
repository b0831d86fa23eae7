#include "simgpu/cuda/module/library.h"

#include <fstream>
#include <sstream>

namespace simgpu {
namespace {

Library *valid_library(CUlibrary handle) {
  auto *library = reinterpret_cast<Library *>(handle);
  return library != nullptr && library->magic == kLibraryMagic ? library : nullptr;
}
Kernel *valid_kernel(CUkernel handle) {
  auto *kernel = reinterpret_cast<Kernel *>(handle);
  return kernel != nullptr && kernel->magic == kKernelMagic ? kernel : nullptr;
}

}  // namespace

CUresult library_module(Driver *driver, Context *context, Library *library, Module **module) {
  auto it = library->loaded.find(context->id);
  if (it != library->loaded.end()) {
    *module = it->second;
    return CUDA_SUCCESS;
  }
  CUresult result = load_module(driver, context, library->image, module);
  if (result == CUDA_SUCCESS) library->loaded[context->id] = *module;
  return result;
}

Function *kernel_function(Driver *driver, Context *context, Kernel *kernel) {
  DriverLock lock(driver->mutex);
  Module *module;
  if (library_module(driver, context, kernel->library, &module) != CUDA_SUCCESS) return nullptr;
  auto it = module->functions.find(kernel->image.name);
  return it != module->functions.end() ? it->second : nullptr;
}

}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *, void **, unsigned int, CUlibraryOption *,
                           void **, unsigned int) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (out == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto *library = new Library;
  if (!read_image(code, &library->image)) {
    delete library;
    return CUDA_ERROR_INVALID_IMAGE;
  }
  for (const ImageKernel &image : library->image.kernels) {
    auto *kernel = new Kernel;
    kernel->library = library;
    kernel->image = image;
    library->kernels[image.name] = kernel;
  }
  *out = reinterpret_cast<CUlibrary>(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *name, CUjit_option *jit, void **jit_values,
                               unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(name, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::stringstream bytes;
  bytes << file.rdbuf();
  std::string text = bytes.str();
  if (text.size() < 64) text.resize(64);
  return cuLibraryLoadData(out, text.c_str(), jit, jit_values, jit_count, options, values, count);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Library *library = valid_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Contexts that are gone took their copies with them.
  for (Context *context : driver->contexts) {
    auto it = library->loaded.find(context->id);
    if (it != library->loaded.end() && context->modules.count(it->second) != 0) unload_module(driver, it->second);
  }
  for (auto &[name, kernel] : library->kernels) {
    kernel->magic = 0;
    delete kernel;
  }
  library->magic = 0;
  delete library;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Library *library = valid_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto it = library->kernels.find(name);
  if (it == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUkernel>(it->second);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle) {
  Library *library = valid_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary handle) {
  Library *library = valid_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned i = 0;
  for (auto &[name, kernel] : library->kernels)
    if (i < count) kernels[i++] = reinterpret_cast<CUkernel>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *out, CUlibrary handle) {
  SIMGPU_CONTEXT(driver, context);
  DriverLock lock(driver->mutex);
  Library *library = valid_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module *module;
  CUresult result = library_module(driver, context, library, &module);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUmodule>(module);
  return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
  CUmodule module;
  CUresult result = cuLibraryGetModule(&module, library);
  return result == CUDA_SUCCESS ? cuModuleGetGlobal_v2(dptr, bytes, module, name) : result;
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle, const char *name) {
  Library *library = valid_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const ImageVariable &variable : library->image.variables)
    if (name != nullptr && variable.name == name && variable.managed)
      return cuLibraryGetGlobal(dptr, bytes, handle, name);
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel handle) {
  SIMGPU_CONTEXT(driver, context);
  Kernel *kernel = valid_kernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function *function = kernel_function(driver, context, kernel);
  if (function == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel handle) {
  Kernel *kernel = valid_kernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->image.name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel handle) {
  Kernel *kernel = valid_kernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}

}  // extern "C"
