// A client that patches the driver's allocation function in place, as communication libraries do to see allocations.
//   patcher found     what dlsym finds
//   patcher driver    the driver's own code
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf_walk.h"
#include "steps.h"

namespace {

#if defined(__x86_64__)
constexpr unsigned char kJump[] = {0xff, 0x25, 0, 0, 0, 0};  // jmp *0(%rip)
#else
constexpr unsigned char kJump[] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6};  // ldr x16, #8; br x16
#endif

unsigned char *target;
unsigned char original[sizeof kJump + sizeof(void *)];
unsigned char jump[sizeof original];
unsigned calls;

void write_code(const unsigned char *code) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(target) & ~(page - 1);
  mprotect(reinterpret_cast<void *>(start), 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC);
  std::memcpy(target, code, sizeof original);
  __builtin___clear_cache(reinterpret_cast<char *>(target), reinterpret_cast<char *>(target + sizeof original));
  mprotect(reinterpret_cast<void *>(start), 2 * page, PROT_READ | PROT_EXEC);
}

CUresult observed(CUdeviceptr *pointer, size_t bytes) {
  ++calls;
  write_code(original);
  const CUresult result = reinterpret_cast<decltype(&cuMemAlloc_v2)>(target)(pointer, bytes);
  write_code(jump);
  return result;
}

void *drivers_own(void *library) {
  link_map *object = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &object) == 0 ? look_up(*object, "cuMemAlloc_v2") : nullptr;
}

}  // namespace

int main(int argc, char **argv) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (argc != 2 || library == nullptr) return 2;
  const bool found = std::strcmp(argv[1], "found") == 0;
  target = static_cast<unsigned char *>(found ? dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") : drivers_own(library));
  if (target == nullptr) return 2;
  void *const to = reinterpret_cast<void *>(&observed);
  std::memcpy(original, target, sizeof original);
  std::memcpy(jump, kJump, sizeof kJump);
  std::memcpy(jump + sizeof kJump, &to, sizeof to);
  write_code(jump);
  const auto get = [&](const char *name) { return dlsym(library, name); };
  const int status = run_steps({reinterpret_cast<decltype(&cuInit)>(get("cuInit")),
                                reinterpret_cast<decltype(&cuCtxCreate_v2)>(get("cuCtxCreate_v2")),
                                reinterpret_cast<decltype(&cuMemAlloc_v2)>(get("cuMemAlloc_v2")),
                                reinterpret_cast<decltype(&cuMemFree_v2)>(get("cuMemFree_v2")),
                                reinterpret_cast<decltype(&cuMemGetInfo_v2)>(get("cuMemGetInfo_v2"))});
  std::printf("observed %u\n", calls);
  return status;
}
