#include "node_name.h"

#include <unistd.h>

#include <cstdlib>

namespace vgpu::node {

std::string node_name() {
  if (const char *name = std::getenv("SLURMD_NODENAME")) return name;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string name(host);
  return name.substr(0, name.find('.'));
}

}  // namespace vgpu::node
