// How a program's question for a function is answered: with the driver's own pointer, or with our hook for it.
#pragma once

#include <cstdint>

#include "table.h"

namespace vgpu::driver {

// What the code in dl_entry.cc does: return `value` if `answered`, else jump there.
struct Choice {
  void *value;
  std::uintptr_t answered;
};

// The hook that stands for what the driver returned, or what the driver returned.
void *hook_for(void *driver_pointer, const char *name, int version, std::uint64_t flags);

// The loader's own functions, whichever library has them; null before anything could have loaded that library.
void *loader_open(const char *name, int mode);
void *loader_symbol(void *handle, const char *name);

}  // namespace vgpu::driver

extern "C" {
vgpu::driver::Choice vgpu_choose_dlsym(void *handle, const char *name, const void *caller);
vgpu::driver::Choice vgpu_choose_dlvsym(void *handle, const char *name, const char *version, const void *caller);
vgpu::driver::Choice vgpu_choose_dlopen(const char *name, int mode);
}
