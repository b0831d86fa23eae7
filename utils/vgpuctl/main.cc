// vgpuctl: looks at the regions of this node, and steers them. See vgpuctl.1.
#include <malloc.h>

#include <csignal>

#include "options.h"

int main(int argc, char **argv) {
  // As `vgpuctl list --watch | head` expects, also where the caller ignores it.
  std::signal(SIGPIPE, SIG_DFL);
  // A region is read into buffers that are too large for the heap by default: they would be mapped and cleared anew for each.
  mallopt(M_MMAP_THRESHOLD, 16 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  int status = 0;
  const auto options = vgpu::ctl::parse_options(argc, argv, &status);
  return options ? options->command(*options) : status;
}
