// vgpuctl: looks at the regions of this node, and steers them. See vgpuctl.1.
#include <csignal>

#include "options.h"

int main(int argc, char **argv) {
  // As `vgpuctl list --watch | head` expects, also where the caller ignores it.
  std::signal(SIGPIPE, SIG_DFL);
  int status = 0;
  const auto options = vgpu::ctl::parse_options(argc, argv, &status);
  return options ? options->command(*options) : status;
}
