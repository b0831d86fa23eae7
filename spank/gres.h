// Which device files Slurm's GPU numbers stand for, as gres.conf says.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "node/node.h"
#include "node/site_config.h"

namespace vgpu::spank {

// The files of each gpu of a node: one, or several for a MIG instance. Its place in the list is its gres index.
using GresFiles = std::vector<std::vector<std::string>>;

// Empty without an error: there is no gres.conf, or it leaves the GPUs to AutoDetect.
Error read_gres_conf(const node::SiteConfig &config, const std::string &node_name, GresFiles *gpus);

// Sets gres_index: by device file and minor number; without `gpus` in the order of PCI, which is AutoDetect's.
// Never by NVML's or CUDA's numbers, which are others.
void number_devices(const GresFiles &gpus, std::vector<node::NodeDevice> *devices);

}  // namespace vgpu::spank
