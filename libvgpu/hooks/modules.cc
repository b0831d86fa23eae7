// Modules and libraries: code and variables on the device, of a size that only the driver knows.
#include "driver/flags.h"
#include "runtime/charge.h"
#include "sm/first_launch.h"
#include "sm/metered.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

template <typename Loaded, typename Call, typename Undo>
CUresult load(Loaded *loaded, Call call, Undo undo) {
  const Mode now = mode();
  if (now != Mode::active) return now == Mode::inert ? call(loaded) : kNotReady;
  Place place;
  // Without a context there is nowhere to load to yet; a device that is not the job's has no context of ours.
  if (!current_place(&place) || place.dev == kNotInJob) return call(loaded);
  UntrackedCharge untracked(static_cast<unsigned>(place.dev), Kind::module);
  if (!untracked.granted()) return CUDA_ERROR_OUT_OF_MEMORY;
  Loaded made = {};
  const CUresult result = call(loaded != nullptr ? &made : nullptr);
  if (result != CUDA_SUCCESS) {
    untracked.cancel();
    return result;
  }
  if (!untracked.settle()) {
    undo(made);
    untracked.cancel();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *loaded = made;
  return CUDA_SUCCESS;
}

template <typename Call>
CUresult unload(Call call) {
  // The handles of its functions can be others' before the driver's call returns.
  if (launches_are_metered()) sm::doubt_costs();
  const CUresult result = call();
  Place place;
  if (result == CUDA_SUCCESS && launches_are_metered()) sm::forget_functions();
  if (result == CUDA_SUCCESS && mode() == Mode::active && current_place(&place) && place.dev != kNotInJob) {
    settle_untracked(static_cast<unsigned>(place.dev), Kind::module);
  }
  return result;
}

template <typename Call>
CUresult load_module(CUmodule *module, Call call) {
  return load(module, call, [](CUmodule made) { REAL(cuModuleUnload)(made); });
}

template <typename Call>
CUresult load_library(CUlibrary *library, Call call) {
  return load(library, call, [](CUlibrary made) { REAL(cuLibraryUnload)(made); });
}

}  // namespace

extern "C" {

CUresult cuModuleLoad(CUmodule *module, const char *name) {
  return load_module(module, [&](CUmodule *made) { return REAL(cuModuleLoad)(made, name); });
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return load_module(module, [&](CUmodule *made) { return REAL(cuModuleLoadData)(made, image); });
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values) {
  return load_module(module,
                     [&](CUmodule *made) { return REAL(cuModuleLoadDataEx)(made, image, count, options, values); });
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
  return load_module(module, [&](CUmodule *made) { return REAL(cuModuleLoadFatBinary)(made, image); });
}

CUresult cuModuleUnload(CUmodule module) {
  return unload([&] { return REAL(cuModuleUnload)(module); });
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
  return load_library(library, [&](CUlibrary *made) {
    return REAL(cuLibraryLoadData)(made, code, jit_options, jit_values, jit_count, options, values, count);
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *name, CUjit_option *jit_options, void **jit_values,
                               unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
  return load_library(library, [&](CUlibrary *made) {
    return REAL(cuLibraryLoadFromFile)(made, name, jit_options, jit_values, jit_count, options, values, count);
  });
}

CUresult cuLibraryUnload(CUlibrary library) {
  return unload([&] { return REAL(cuLibraryUnload)(library); });
}

// A library is loaded into a context when something of it is first asked for there.
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
  return remeasure_after(REAL(cuLibraryGetModule)(module, library));
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name) {
  return remeasure_after(REAL(cuLibraryGetGlobal)(pointer, bytes, library, name));
}

CUresult cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name) {
  return remeasure_after(REAL(cuLibraryGetManaged)(pointer, bytes, library, name));
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  return remeasure_after(REAL(cuKernelGetFunction)(function, kernel));
}

// Asked for by name: it takes what a first launch would take.
CUresult cuFuncLoad(CUfunction function) {
  const CUresult result = remeasure_after(REAL(cuFuncLoad)(function));
  Place place;
  if (result == CUDA_SUCCESS && mode() == Mode::active && current_place(&place) && place.dev != kNotInJob) {
    settle_for_reader(static_cast<unsigned>(place.dev));
  }
  return result;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  const CUresult result = REAL(cuModuleGetFunction)(function, module, name);
  if (result == CUDA_SUCCESS && launches_are_metered()) sm::note_function(*function);
  return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  const CUresult result = REAL(cuLibraryGetKernel)(kernel, library, name);
  if (result == CUDA_SUCCESS && launches_are_metered()) sm::note_kernel(*kernel);
  return result;
}

}  // extern "C"
