// Tries everything that could get device memory, whatever was answered before.  attempts linked|dlsym|proc
// Prints "FUNCTION RESULT" lines.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace {

void *library;
decltype(&cuGetProcAddress_v2) ask;
const char *way;

template <typename Function>
Function *find(Function *linked, const char *symbol, const char *name, int version) {
  void *found = reinterpret_cast<void *>(linked);
  if (std::strcmp(way, "dlsym") == 0) found = dlsym(library, symbol);
  if (std::strcmp(way, "proc") == 0 && ask(name, &found, version, 0, nullptr) != CUDA_SUCCESS) found = nullptr;
  return reinterpret_cast<Function *>(found);
}

#define TRY(symbol, name, version, ...)                                  \
  do {                                                                   \
    auto *function = find(&symbol, #symbol, #name, version);             \
    const int result = function == nullptr ? -1 : function(__VA_ARGS__); \
    std::printf(#symbol " %d\n", result);                                \
  } while (false)

constexpr size_t kBytes = 4 << 20;
const char kPtx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  way = argv[1];
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  ask = reinterpret_cast<decltype(ask)>(dlsym(library, "cuGetProcAddress_v2"));
  CUcontext context;
  CUdeviceptr pointer;
  CUmodule module;
  CUarray array;
  CUmipmappedArray mipmap;
  CUmemGenericAllocationHandle handle;
  size_t pitch;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUDA_ARRAY_DESCRIPTOR plane = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
  CUDA_ARRAY3D_DESCRIPTOR volume = {256, 256, 4, CU_AD_FORMAT_FLOAT, 1, 0};
  TRY(cuInit, cuInit, 2000, 0);
  TRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, &context, 0);
  TRY(cuCtxCreate_v2, cuCtxCreate, 3020, &context, 0, 0);
  TRY(cuCtxCreate_v3, cuCtxCreate, 11040, &context, nullptr, 0, 0, 0);
  TRY(cuMemAlloc_v2, cuMemAlloc, 3020, &pointer, kBytes);
  TRY(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, &pointer, &pitch, 4096, 1024, 16);
  TRY(cuMemAllocManaged, cuMemAllocManaged, 6000, &pointer, kBytes, CU_MEM_ATTACH_GLOBAL);
  TRY(cuMemAllocAsync, cuMemAllocAsync, 11020, &pointer, kBytes, nullptr);
  TRY(cuMemCreate, cuMemCreate, 10020, &handle, kBytes, &properties, 0);
  TRY(cuArrayCreate_v2, cuArrayCreate, 3020, &array, &plane);
  TRY(cuArray3DCreate_v2, cuArray3DCreate, 3020, &array, &volume);
  TRY(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, &mipmap, &volume, 1);
  TRY(cuModuleLoadData, cuModuleLoadData, 2000, &module, kPtx);
  std::puts("end");
  return 0;
}
