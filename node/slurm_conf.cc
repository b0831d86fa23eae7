#include "slurm_conf.h"

#include <cstdlib>

namespace vgpu::node {

std::vector<std::string> slurm_conf_paths(const std::string &name) {
  std::vector<std::string> paths;
  if (const char *slurm_conf = std::getenv("SLURM_CONF")) {
    const std::string path(slurm_conf);
    paths.push_back(name == "slurm.conf" ? path : path.substr(0, path.rfind('/') + 1) + name);
  }
  for (const char *folder : {"/run/slurm/conf/", "/etc/slurm/", "/etc/slurm-llnl/"}) paths.push_back(folder + name);
  return paths;
}

}  // namespace vgpu::node
