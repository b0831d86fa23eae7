#include "wiped.h"

#include <sys/mman.h>

namespace vgpu {

Error map_wiped_on_fork(std::size_t size, void **pages) {
  void *mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return system_error("no memory for the process state");
  if (madvise(mapped, size, MADV_WIPEONFORK) != 0) {
    const Error error = system_error("this kernel cannot wipe memory on fork; Linux 4.14 or newer is needed");
    munmap(mapped, size);
    return error;
  }
  *pages = mapped;
  return {};
}

}  // namespace vgpu
