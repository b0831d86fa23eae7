#include "first_launch.h"

#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "captures.h"
#include "driver/table.h"

namespace vgpu::sm {

namespace {

enum Known : std::uint64_t { nothing, function, kernel, launched };

struct Functions {
  Mutex mutex;
  FlatMap known VGPU_GUARDED_BY(mutex);  // by handle
};
constinit WipedOnFork<Functions> functions;

std::uint64_t key_of(const void *handle) { return reinterpret_cast<std::uintptr_t>(handle); }

// What was known of it before.
Known note(const void *handle, Known now) {
  Functions *all = handle != nullptr ? functions.get() : nullptr;
  if (all == nullptr) return launched;
  ScopedLock lock(all->mutex);
  std::uint64_t *known = all->known.insert(key_of(handle));
  if (known == nullptr) return launched;
  const auto before = static_cast<Known>(*known);
  if (before != launched) *known = now;
  return before;
}

}  // namespace

void note_function(CUfunction handle) { note(handle, function); }
void note_kernel(CUkernel handle) { note(handle, kernel); }

void forget_functions() {
  Functions *all = functions.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  all->known.erase_if([](std::uint64_t, std::uint64_t) { return true; });
}

void load_before_first_launch(const void *handle) {
  const Known before = note(handle, launched);
  if (before == launched) return;
  // Loading may be unsafe in the eyes of somebody's capture.
  const RelaxedCapture relaxed;
  auto *loaded = static_cast<CUfunction>(const_cast<void *>(handle));
  const bool is_function =
      before == function ||
      (before == kernel && REAL(cuKernelGetFunction)(&loaded, reinterpret_cast<CUkernel>(loaded)) == CUDA_SUCCESS);
  if (is_function) REAL(cuFuncLoad)(loaded);
}

}  // namespace vgpu::sm
