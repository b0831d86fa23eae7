// A client that opens the driver when it runs.  opened NAME local|global dlsym|dlvsym|default|self|proc|proc_v2
#include <dlfcn.h>

#include <cstring>

#include "steps.h"

namespace {

void *(*find)(const char *name, const char *base, int version);
void *library;
decltype(&cuGetProcAddress) ask;
decltype(&cuGetProcAddress_v2) ask_v2;

void *by_dlsym(const char *name, const char *, int) { return dlsym(library, name); }
void *by_dlvsym(const char *name, const char *, int) { return dlvsym(library, name, "PRELOAD_TEST_1"); }
void *by_default(const char *name, const char *, int) { return dlsym(RTLD_DEFAULT, name); }

void *by_address(const char *, const char *base, int version) {
  void *pointer = nullptr;
  return ask(base, &pointer, version, CU_GET_PROC_ADDRESS_DEFAULT) == CUDA_SUCCESS ? pointer : nullptr;
}

void *by_address_v2(const char *, const char *base, int version) {
  void *pointer = nullptr;
  CUdriverProcAddressQueryResult status;
  return ask_v2(base, &pointer, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS ? pointer : nullptr;
}

template <typename Function>
void get(Function *function, const char *name, const char *base, int version) {
  *function = reinterpret_cast<Function>(find(name, base, version));
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  library = dlopen(argv[1], RTLD_NOW | (std::strcmp(argv[2], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  const char *way = argv[3];
  find = std::strcmp(way, "dlvsym") == 0    ? by_dlvsym
         : std::strcmp(way, "default") == 0 ? by_default
         : std::strcmp(way, "proc") == 0    ? by_address
         : std::strcmp(way, "proc_v2") == 0 ? by_address_v2
                                            : by_dlsym;
  if (std::strcmp(way, "self") == 0) library = dlopen(nullptr, RTLD_NOW);
  ask = reinterpret_cast<decltype(ask)>(dlsym(library, "cuGetProcAddress"));
  ask_v2 = reinterpret_cast<decltype(ask_v2)>(dlsym(library, "cuGetProcAddress_v2"));
  Functions driver;
  get(&driver.init, "cuInit", "cuInit", 2000);
  get(&driver.create, "cuCtxCreate_v2", "cuCtxCreate", 3020);
  get(&driver.alloc, "cuMemAlloc_v2", "cuMemAlloc", 3020);
  get(&driver.free, "cuMemFree_v2", "cuMemFree", 3020);
  get(&driver.info, "cuMemGetInfo_v2", "cuMemGetInfo", 3020);
  return run_steps(driver);
}
