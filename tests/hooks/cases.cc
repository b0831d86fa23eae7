#include "cases.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace vgpu::test {

namespace {

template <typename Output>
Output to_output(std::uint64_t value) {
  if constexpr (std::is_pointer_v<Output>) {
    return reinterpret_cast<Output>(value);
  } else {
    return static_cast<Output>(value);
  }
}

template <typename Output>
std::uint64_t to_value(Output output) {
  if constexpr (std::is_pointer_v<Output>) {
    return reinterpret_cast<std::uint64_t>(output);
  } else {
    return output;
  }
}

template <typename Output, typename Call>
CUresult make(std::uint64_t *handle, Call call) {
  if (handle == nullptr) return call(nullptr);
  auto output = to_output<Output>(kUntouched);
  const CUresult result = call(&output);
  *handle = to_value(output);
  return result;
}

// A pitch written by a call that failed counts as a touched output.
template <typename Pointer, typename Size, typename Function>
CUresult make_pitched(std::uint64_t *handle, std::uint64_t bytes, Function *function) {
  constexpr Size kWidth = 2000;  // 2048 with the padding
  Size pitch = kUntouched;
  const CUresult result = make<Pointer>(
      handle, [&](Pointer *pointer) { return function(pointer, &pitch, kWidth, static_cast<Size>(bytes / 2048), 16); });
  if (result != CUDA_SUCCESS && pitch != kUntouched && handle != nullptr) *handle = pitch;
  return result;
}

template <typename Shape, typename Function>
CUresult make_array_2d(std::uint64_t *handle, std::uint64_t bytes, Function *function) {
  Shape shape = {};
  shape.Width = 512;
  shape.Height = static_cast<decltype(shape.Height)>(bytes / 2048);
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  return make<CUarray>(handle, [&](CUarray *array) { return function(array, &shape); });
}

template <typename Shape>
Shape shape_3d(std::uint64_t bytes) {
  Shape shape = {};
  shape.Width = 128;
  shape.Height = 256;
  shape.Depth = static_cast<decltype(shape.Depth)>(bytes / 2048 / 256);
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  shape.NumChannels = 4;
  return shape;
}

template <typename Shape, typename Function>
CUresult make_array_3d(std::uint64_t *handle, std::uint64_t bytes, Function *function) {
  const auto shape = shape_3d<Shape>(bytes);
  return make<CUarray>(handle, [&](CUarray *array) { return function(array, &shape); });
}

// A module in a file that goes with the process, however that ends.
template <typename Call>
CUresult with_file(std::uint64_t variable_bytes, Call call) {
  const int fd = memfd_create("module", MFD_CLOEXEC);
  const std::string image = module_image(variable_bytes);
  if (fd < 0 || write(fd, image.data(), image.size()) != static_cast<ssize_t>(image.size())) std::abort();
  const CUresult result = call(("/proc/self/fd/" + std::to_string(fd)).c_str());
  close(fd);
  return result;
}

template <typename Output, typename Call>
CUresult make_from_image(std::uint64_t *handle, std::uint64_t variable_bytes, Call call) {
  const std::string image = module_image(variable_bytes);
  return make<Output>(handle, [&](Output *output) { return call(output, image.c_str()); });
}

template <typename Call>
CUresult make_context(std::uint64_t *handle, Call call) {
  return make<CUcontext>(handle, call);
}

CUdevice device(std::uint64_t ordinal) { return static_cast<CUdevice>(ordinal); }

// Two of the arguments of every maker are the same.
#define MAKER(symbol, family, release, body)                                                                         \
  {                                                                                                                  \
#symbol, Family::family, [](std::uint64_t * handle, std::uint64_t amount) -> CUresult { return body; }, #release \
  }
#define RELEASER(symbol, family, argument)                                                       \
  {                                                                                              \
#symbol, Family::family, [](std::uint64_t value) { return DRIVER(symbol)(argument(value)); } \
  }

constexpr Maker kMakers[] = {
    MAKER(cuMemAlloc, allocation, cuMemFree,
          make<CUdeviceptr_v1>(
              handle,
              [&](CUdeviceptr_v1 *pointer) { return DRIVER(cuMemAlloc)(pointer, static_cast<unsigned>(amount)); })),
    MAKER(cuMemAlloc_v2, allocation, cuMemFree_v2,
          make<CUdeviceptr>(handle, [&](CUdeviceptr *pointer) { return DRIVER(cuMemAlloc_v2)(pointer, amount); })),
    MAKER(cuMemAllocPitch, allocation, cuMemFree,
          (make_pitched<CUdeviceptr_v1, unsigned>(handle, amount, DRIVER(cuMemAllocPitch)))),
    MAKER(cuMemAllocPitch_v2, allocation, cuMemFree_v2,
          (make_pitched<CUdeviceptr, std::size_t>(handle, amount, DRIVER(cuMemAllocPitch_v2)))),
    MAKER(cuMemAllocManaged, allocation, cuMemFree_v2,
          make<CUdeviceptr>(
              handle,
              [&](CUdeviceptr *pointer) { return DRIVER(cuMemAllocManaged)(pointer, amount, CU_MEM_ATTACH_GLOBAL); })),
    MAKER(cuArrayCreate, allocation, cuArrayDestroy,
          make_array_2d<CUDA_ARRAY_DESCRIPTOR_v1>(handle, amount, DRIVER(cuArrayCreate))),
    MAKER(cuArrayCreate_v2, allocation, cuArrayDestroy,
          make_array_2d<CUDA_ARRAY_DESCRIPTOR>(handle, amount, DRIVER(cuArrayCreate_v2))),
    MAKER(cuArray3DCreate, allocation, cuArrayDestroy,
          make_array_3d<CUDA_ARRAY3D_DESCRIPTOR_v1>(handle, amount, DRIVER(cuArray3DCreate))),
    MAKER(cuArray3DCreate_v2, allocation, cuArrayDestroy,
          make_array_3d<CUDA_ARRAY3D_DESCRIPTOR>(handle, amount, DRIVER(cuArray3DCreate_v2))),
    MAKER(cuMipmappedArrayCreate, allocation, cuMipmappedArrayDestroy,
          make<CUmipmappedArray>(handle,
                                 [&](CUmipmappedArray *array) {
                                   const auto shape = shape_3d<CUDA_ARRAY3D_DESCRIPTOR>(amount);
                                   return DRIVER(cuMipmappedArrayCreate)(array, &shape, 1);
                                 })),

    MAKER(cuCtxCreate, context, cuCtxDestroy,
          make_context(handle, [&](CUcontext *context) { return DRIVER(cuCtxCreate)(context, 0, device(amount)); })),
    MAKER(cuCtxCreate_v2, context, cuCtxDestroy_v2,
          make_context(handle, [&](CUcontext *context) { return DRIVER(cuCtxCreate_v2)(context, 0, device(amount)); })),
    MAKER(cuCtxCreate_v3, context, cuCtxDestroy_v2,
          make_context(
              handle,
              [&](CUcontext *context) { return DRIVER(cuCtxCreate_v3)(context, nullptr, 0, 0, device(amount)); })),
    MAKER(cuCtxCreate_v4, context, cuCtxDetach,
          make_context(
              handle, [&](CUcontext *context) { return DRIVER(cuCtxCreate_v4)(context, nullptr, 0, device(amount)); })),
    MAKER(cuGLCtxCreate, context, cuCtxDestroy,
          make_context(handle, [&](CUcontext *context) { return DRIVER(cuGLCtxCreate)(context, 0, device(amount)); })),
    MAKER(
        cuGLCtxCreate_v2, context, cuCtxDestroy_v2,
        make_context(handle, [&](CUcontext *context) { return DRIVER(cuGLCtxCreate_v2)(context, 0, device(amount)); })),
    MAKER(cuVDPAUCtxCreate, context, cuCtxDestroy,
          make_context(
              handle,
              [&](CUcontext *context) { return DRIVER(cuVDPAUCtxCreate)(context, 0, device(amount), 0, nullptr); })),
    MAKER(cuVDPAUCtxCreate_v2, context, cuCtxDestroy_v2,
          make_context(
              handle,
              [&](CUcontext *context) { return DRIVER(cuVDPAUCtxCreate_v2)(context, 0, device(amount), 0, nullptr); })),
    MAKER(cuDevicePrimaryCtxRetain, context, cuDevicePrimaryCtxRelease_v2,
          make_context(handle,
                       [&](CUcontext *context) { return DRIVER(cuDevicePrimaryCtxRetain)(context, device(amount)); })),

    MAKER(cuCtxAttach, attachment, cuCtxDetach,
          make_context(
              handle, [&](CUcontext *context) { return DRIVER(cuCtxAttach)(context, static_cast<unsigned>(amount)); })),

    MAKER(cuModuleLoad, module, cuModuleUnload,
          with_file(amount,
                    [&](const char *path) {
                      return make<CUmodule>(handle,
                                            [&](CUmodule *module) { return DRIVER(cuModuleLoad)(module, path); });
                    })),
    MAKER(cuModuleLoadData, module, cuModuleUnload,
          make_from_image<CUmodule>(handle, amount, DRIVER(cuModuleLoadData))),
    MAKER(cuModuleLoadDataEx, module, cuModuleUnload,
          make_from_image<CUmodule>(handle, amount,
                                    [](CUmodule *module, const char *image) {
                                      return DRIVER(cuModuleLoadDataEx)(module, image, 0, nullptr, nullptr);
                                    })),
    MAKER(cuModuleLoadFatBinary, module, cuModuleUnload,
          make_from_image<CUmodule>(handle, amount, DRIVER(cuModuleLoadFatBinary))),
    MAKER(cuLibraryLoadData, module, cuLibraryUnload,
          make_from_image<CUlibrary>(handle, amount,
                                     [](CUlibrary *library, const char *image) {
                                       return DRIVER(cuLibraryLoadData)(library, image, nullptr, nullptr, 0, nullptr,
                                                                        nullptr, 0);
                                     })),
    MAKER(cuLibraryLoadFromFile, module, cuLibraryUnload,
          with_file(amount,
                    [&](const char *path) {
                      return make<CUlibrary>(handle, [&](CUlibrary *library) {
                        return DRIVER(cuLibraryLoadFromFile)(library, path, nullptr, nullptr, 0, nullptr, nullptr, 0);
                      });
                    })),
};

constexpr Releaser kReleasers[] = {
    RELEASER(cuMemFree, allocation, to_output<CUdeviceptr_v1>),
    RELEASER(cuMemFree_v2, allocation, to_output<CUdeviceptr>),
    RELEASER(cuArrayDestroy, allocation, to_output<CUarray>),
    RELEASER(cuMipmappedArrayDestroy, allocation, to_output<CUmipmappedArray>),
    RELEASER(cuCtxDestroy, context, to_output<CUcontext>),
    RELEASER(cuCtxDestroy_v2, context, to_output<CUcontext>),
    RELEASER(cuCtxDetach, context, to_output<CUcontext>),
    RELEASER(cuDevicePrimaryCtxRelease, context, device),
    RELEASER(cuDevicePrimaryCtxRelease_v2, context, device),
    RELEASER(cuDevicePrimaryCtxReset, context, device),
    RELEASER(cuDevicePrimaryCtxReset_v2, context, device),
    RELEASER(cuModuleUnload, module, to_output<CUmodule>),
    RELEASER(cuLibraryUnload, module, to_output<CUlibrary>),
};

template <typename Row>
const Row *find(std::span<const Row> rows, const std::string &symbol) {
  for (const Row &row : rows) {
    if (symbol == row.symbol) return &row;
  }
  return nullptr;
}

}  // namespace

std::span<const Maker> makers() { return kMakers; }
std::span<const Releaser> releasers() { return kReleasers; }
std::vector<Maker> makers_of(Family family) {
  std::vector<Maker> all;
  std::copy_if(makers().begin(), makers().end(), std::back_inserter(all),
               [&](const Maker &maker) { return maker.family == family && is_simulated(maker); });
  return all;
}
bool is_simulated(const Maker &maker) {
  return std::strstr(maker.symbol, "GL") == nullptr && std::strstr(maker.symbol, "VDPAU") == nullptr;
}
bool is_primary(const std::string &symbol) { return symbol.find("Primary") != std::string::npos; }
const Maker *find_maker(const std::string &symbol) { return find(makers(), symbol); }
const Releaser *find_releaser(const std::string &symbol) { return find(releasers(), symbol); }

void *driver_symbol(const char *name) {
  const char *library = std::strncmp(name, "nvml", 4) == 0 ? "libnvidia-ml.so.1" : "libcuda.so.1";
  void *handle = dlopen(library, RTLD_NOW);
  void *symbol = handle != nullptr ? dlsym(handle, name) : nullptr;
  if (symbol == nullptr) {
    std::fprintf(stderr, "%s: %s\n", name, dlerror());
    std::abort();
  }
  return symbol;
}

std::string module_image(std::uint64_t variable_bytes) {
  std::string image = ".version 7.0\n.target sm_70\n.address_size 64\n";
  if (variable_bytes != 0) image += ".global .align 4 .b8 table[" + std::to_string(variable_bytes) + "];\n";
  return image + ".visible .entry nothing()\n{\n  ret;\n}\n";
}

}  // namespace vgpu::test
