// What plugstack.conf says about spank_vgpu.so on this node, read as Slurm reads it and parsed by the plugin's own code.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "site_config.h"

namespace vgpu::node {

struct Plugstack {
  std::string file;                // the plugstack.conf that was read
  std::vector<std::string> empty;  // `include` lines in it that find no file

  std::string where;   // FILE:LINE that loads the plugin; empty: none does
  unsigned lines = 0;  // that load it; Slurm heeds the first
  bool required = false;
  std::string plugin;             // where Slurm finds it; as it is written there, if nowhere
  std::vector<std::string> keys;  // as they are written there
  Error bad_keys;
  SiteConfig config;  // the plugin's own defaults where nothing was said, or with bad keys
};

// `wanted`: the file; empty: Slurm's. Fault::not_found: there is none.
Error read_plugstack(const std::string &wanted, Plugstack *plugstack);

}  // namespace vgpu::node
