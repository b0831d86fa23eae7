// The driver and NVML, opened at run time.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tables.h"

namespace tables {

namespace {

void *open_driver() {
  static void *library = [] {
    void *opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (opened != nullptr) return opened;
    std::printf("-> there is no driver: %s\n", dlerror());
    std::exit(1);
  }();
  return library;
}

}  // namespace

bool driver_has(const char *name) { return dlsym(open_driver(), name) != nullptr; }

void *driver_function(const char *name) {
  void *function = dlsym(open_driver(), name);
  if (function != nullptr) return function;
  std::printf("-> the driver has no %s\n", name);
  std::exit(1);
}

std::string name_of(CUresult result) {
  const char *name = nullptr;
  if (CU(cuGetErrorName)(result, &name) != CUDA_SUCCESS || name == nullptr) return std::to_string(result);
  return name;
}

void check(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("-> %s failed: %s\n", what, name_of(result).c_str());
  std::exit(1);
}

void *nvml_function(const char *name) {
  static void *library = [] {
    void *opened = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    auto *init = opened != nullptr ? reinterpret_cast<nvmlReturn_t (*)()>(dlsym(opened, "nvmlInit_v2")) : nullptr;
    return init != nullptr && init() == NVML_SUCCESS ? opened : nullptr;
  }();
  return library != nullptr ? dlsym(library, name) : nullptr;
}

std::string name_of(nvmlReturn_t result) {
  if (result == NVML_SUCCESS) return "ok";
  if (result == NVML_ERROR_FUNCTION_NOT_FOUND) return "no such function";
  if (result == NVML_ERROR_NOT_SUPPORTED) return "not supported";
  if (result == NVML_ERROR_NO_PERMISSION) return "no permission";
  if (result == NVML_ERROR_NOT_FOUND) return "nothing found";
  if (result == NVML_ERROR_INSUFFICIENT_SIZE) return "insufficient size";
  return "error " + std::to_string(result);
}

CUdevice device() {
  static const CUdevice first = [] {
    CUdevice found = 0;
    check(CU(cuInit)(0), "cuInit");
    check(CU(cuDeviceGet)(&found, 0), "cuDeviceGet");
    return found;
  }();
  return first;
}

nvmlDevice_t nvml_device() {
  static nvmlDevice_t same = [] {
    char bus_id[32] = "";
    nvmlDevice_t found = nullptr;
    check(CU(cuDeviceGetPCIBusId)(bus_id, sizeof bus_id, device()), "cuDeviceGetPCIBusId");
    nvml("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char *>(bus_id), &found);
    return found;
  }();
  return same;
}

void make_context() {
  CUcontext context = nullptr;
  check(CU(cuDevicePrimaryCtxRetain)(&context, device()), "cuDevicePrimaryCtxRetain");
  check(CU(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
}

std::uint64_t free_bytes() {
  size_t free = 0, total = 0;
  check(CU(cuMemGetInfo_v2)(&free, &total), "cuMemGetInfo");
  return free;
}

bool listed_processes(std::vector<ListedProcess> *processes) {
  // The entries of some drivers are longer than those of the header: room enough for any, and the stride is found by what
  // was written.
  constexpr unsigned kRoom = 256, kLongest = 64;
  static std::vector<unsigned char> room(size_t{kRoom} * kLongest);
  std::memset(room.data(), 0xEE, room.size());
  unsigned count = kRoom;
  processes->clear();
  if (nvml("nvmlDeviceGetComputeRunningProcesses_v3", nvml_device(), &count,
           reinterpret_cast<nvmlProcessInfo_t *>(room.data())) != NVML_SUCCESS) {
    return false;
  }
  size_t written = room.size();
  while (written > 0 && room[written - 1] == 0xEE) --written;
  const size_t stride = count > 0 && written > count * sizeof(nvmlProcessInfo_t) ? 32 : sizeof(nvmlProcessInfo_t);
  for (unsigned i = 0; i < count; ++i) {
    nvmlProcessInfo_v1_t entry;
    std::memcpy(&entry, room.data() + i * stride, sizeof entry);
    processes->push_back({entry.pid, entry.usedGpuMemory});
  }
  return true;
}

const ListedProcess *find_process(const std::vector<ListedProcess> &processes, unsigned pid) {
  for (const ListedProcess &one : processes) {
    if (one.pid == pid) return &one;
  }
  return nullptr;
}

bool device_used(std::uint64_t *bytes) {
  nvmlMemory_t memory{};
  if (nvml("nvmlDeviceGetMemoryInfo", nvml_device(), &memory) != NVML_SUCCESS) return false;
  *bytes = memory.used;
  return true;
}

void sleep_ms(unsigned ms) { usleep(ms * 1000); }

}  // namespace tables
