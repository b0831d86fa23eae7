#include "simgpu/cuda/module/module.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "simgpu/cuda/launch/kernel_time.h"
#include "simgpu/cuda/launch/prepare.h"
#include "simgpu/cuda/memory/copy.h"
#include "simgpu/cuda/memory/managed.h"

namespace simgpu {
namespace {

Module *valid_module(CUmodule handle) {
  auto *module = reinterpret_cast<Module *>(handle);
  return module != nullptr && module->magic == kModuleMagic ? module : nullptr;
}

// Whether functions are loaded with their module: as the environment wants it, and where loading them costs nothing.
bool loads_eagerly(const DeviceFacts &facts) {
  const char *wish = getenv("CUDA_MODULE_LOADING");
  return (facts.function_bytes == 0 && facts.function_ns == 0) || (wish != nullptr && strcmp(wish, "EAGER") == 0);
}

// Lays the variables out behind one another and puts their initial bytes there.
CUresult place_variables(Driver *driver, Module *module, const Image &image) {
  uint64_t total = 0;
  for (const ImageVariable &variable : image.variables) {
    Module::Variable placed;
    placed.image = variable;
    if (variable.managed) {
      CUresult result = allocate_managed(driver, module->context, variable.bytes != 0 ? variable.bytes : 1,
                                         CU_MEM_ATTACH_GLOBAL, &placed.managed);
      if (result != CUDA_SUCCESS) return result;
      placed.address = placed.managed->base;
      memcpy(reinterpret_cast<void *>(placed.address), variable.initial.data(), variable.initial.size());
    } else {
      placed.address = total;
      total = round_up(total + variable.bytes, 256);
    }
    module->globals[variable.name] = placed;
  }
  if (total == 0) return CUDA_SUCCESS;
  CUresult result =
      allocate_area(driver, module->context, total, AreaKind::kArray, BlockUse::kModule, false, &module->variables);
  if (result != CUDA_SUCCESS) return result;
  for (auto &[name, variable] : module->globals) {
    if (variable.managed != nullptr) continue;
    variable.address += module->variables->base;
    const std::string &initial = variable.image.initial;
    if (initial.find_first_not_of('\0') != std::string::npos)
      write_device(driver, variable.address, initial.data(), initial.size());
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult load_module(Driver *driver, Context *context, const Image &image, Module **out) {
  auto *module = new Module;
  module->context = context;
  const DeviceFacts &facts = context->device->facts();
  uint64_t bytes = round_up(facts.module_bytes + image.code_bytes, facts.block_bytes);
  CUresult result = CUDA_SUCCESS;
  if (!take_blocks(driver, context->device, bytes, BlockUse::kModule, &module->overhead))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  context->modules.insert(module);
  if (result == CUDA_SUCCESS) result = place_variables(driver, module, image);
  if (result != CUDA_SUCCESS) {
    unload_module(driver, module);
    return result;
  }
  for (const ImageKernel &kernel : image.kernels) {
    auto *function = new Function;
    function->module = module;
    function->context = context;
    function->kernel = kernel;
    function->time = time_of_kernel(context->device->facts(), kernel.name);
    Function *&place = module->functions[kernel.name];
    delete place;
    place = function;
  }
  bool fresh;
  for (auto &[name, function] : module->functions)
    if (result == CUDA_SUCCESS && loads_eagerly(facts)) result = load_function(driver, function, &fresh);
  if (result != CUDA_SUCCESS) {
    unload_module(driver, module);
    return result;
  }
  *out = module;
  return CUDA_SUCCESS;
}

void unload_module(Driver *driver, Module *module) {
  module->context->modules.erase(module);
  for (auto &[name, variable] : module->globals)
    if (variable.managed != nullptr) free_area(driver, variable.managed);
  if (module->variables != nullptr) free_area(driver, module->variables);
  module->context->device->blocks.give(module->overhead, false);
  Context *context = module->context;
  for (auto &[name, function] : module->functions) {
    if (function->loaded) context->code_bytes -= context->device->facts().function_bytes;
    function->magic = 0;
    delete function;
  }
  shrink_blocks(context->device, &context->code, context->code_bytes);
  module->magic = 0;
  delete module;
}

}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  SIMGPU_CONTEXT(driver, context);
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Image parsed;
  if (!read_image(image, &parsed)) return CUDA_ERROR_INVALID_IMAGE;
  DriverLock lock(driver->mutex);
  Module *loaded;
  CUresult result = load_module(driver, context, parsed, &loaded);
  if (result == CUDA_SUCCESS) *module = reinterpret_cast<CUmodule>(loaded);
  return result;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int, CUjit_option *, void **) {
  return cuModuleLoadData(module, image);
}
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) { return cuModuleLoadData(module, image); }

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  (void)context;
  if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(fname, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::stringstream bytes;
  bytes << file.rdbuf();
  std::string text = bytes.str();
  if (text.size() < 64) text.resize(64);
  return cuModuleLoadData(module, text.c_str());
}

CUresult cuModuleUnload(CUmodule handle) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  DriverLock lock(driver->mutex);
  Module *module = valid_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  unload_module(driver, module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  DriverLock lock(driver->mutex);
  Module *module = valid_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto it = module->functions.find(name);
  if (it == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(it->second);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Module *module = valid_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Module *module = valid_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned i = 0;
  for (auto &[name, function] : module->functions)
    if (i < count) functions[i++] = reinterpret_cast<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule handle, const char *name) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  DriverLock lock(driver->mutex);
  Module *module = valid_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto it = module->globals.find(name);
  if (it == module->globals.end()) return CUDA_ERROR_NOT_FOUND;
  if (dptr != nullptr) *dptr = it->second.address;
  if (bytes != nullptr) *bytes = it->second.image.bytes;
  return CUDA_SUCCESS;
}

// The 32-bit call has no room for an address above 4 GiB and says so rather than cut it.
CUresult cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule handle, const char *name) {
  CUdeviceptr address = 0;
  size_t size = 0;
  CUresult result = cuModuleGetGlobal_v2(&address, &size, handle, name);
  if (result != CUDA_SUCCESS) return result;
  if (address >> 32 != 0 && dptr != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (dptr != nullptr) *dptr = static_cast<CUdeviceptr_v1>(address);
  if (bytes != nullptr) *bytes = static_cast<unsigned>(size);
  return CUDA_SUCCESS;
}

}  // extern "C"
