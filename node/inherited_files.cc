#include "inherited_files.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace vgpu::node {

void close_inherited_files() {
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  if (syscall(SYS_close_range, kFirst, ~0u, 0u) == 0) return;
  const long most = sysconf(_SC_OPEN_MAX);
  for (long fd = kFirst; fd < most; ++fd) close(static_cast<int>(fd));
}

}  // namespace vgpu::node
