// Another preloaded tool that interposes the loader's functions, and finds the real ones as such tools do:
//   BY_NEXT      dlopen and dlvsym, by dlsym(RTLD_NEXT)
//   BY_VERSION   dlsym, by dlvsym(RTLD_NEXT) with a version
//   BY_WALK      dlsym, by walking the objects behind it
//   BY_LIBC      dlsym, by walking to libc itself
// At the end it says on standard error whether it was asked for the driver.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "../programs/elf_walk.h"

namespace {

unsigned questions;

__attribute__((destructor)) void tell() {
  const char yes[] = "interposer: was asked\n", no[] = "interposer: was not asked\n";
  if (write(2, questions != 0 ? yes : no, std::strlen(questions != 0 ? yes : no)) < 0) _exit(9);
}

void note(const char *name) {
  if (name != nullptr && (std::strstr(name, "cuda") != nullptr || std::strcmp(name, "cuMemAlloc_v2") == 0)) ++questions;
}

}  // namespace

#ifdef BY_NEXT

extern "C" void *dlopen(const char *name, int mode) {
  static auto *real = reinterpret_cast<void *(*)(const char *, int)>(dlsym(RTLD_NEXT, "dlopen"));
  note(name);
  return real(name, mode);
}

extern "C" void *dlvsym(void *handle, const char *name, const char *version) {
  static auto *real = reinterpret_cast<void *(*)(void *, const char *, const char *)>(dlsym(RTLD_NEXT, "dlvsym"));
  note(name);
  return real(handle, name, version);
}

#else

namespace {

using Find = void *(*)(void *, const char *);

#ifdef BY_VERSION

Find find_real() {
  for (const char *version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"}) {
    if (void *found = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Find>(found);
  }
  _exit(9);
}

#else

Find find_real() {
  Dl_info info;
  link_map *object = nullptr;
  if (dladdr1(reinterpret_cast<void *>(&note), &info, reinterpret_cast<void **>(&object), RTLD_DL_LINKMAP) == 0)
    _exit(9);
  for (object = object->l_next; object != nullptr; object = object->l_next) {
#ifdef BY_LIBC
    if (std::strstr(object->l_name, "/libc.so.6") == nullptr) continue;
#endif
    if (void *found = look_up(*object, "dlsym")) return reinterpret_cast<Find>(found);
  }
  _exit(9);
}

#endif

}  // namespace

extern "C" void *dlsym(void *handle, const char *name) {
  static Find real = find_real();
  note(name);
  return real(handle, name);
}

#endif
