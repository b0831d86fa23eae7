// What plugstack.conf says about spank_vgpu.so on this node, read as Slurm reads it and parsed by the plugin's own code.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "node/site_config.h"
#include "options.h"

namespace vgpu::ctl {

struct Plugstack {
  std::string file;                // the plugstack.conf that was read
  std::vector<std::string> empty;  // `include` lines in it that find no file

  std::string where;   // FILE:LINE that loads the plugin; empty: none does
  unsigned lines = 0;  // that load it; Slurm heeds the first
  bool required = false;
  std::string plugin;  // where Slurm finds it; as it is written there, if nowhere
  Error bad_keys;
  node::SiteConfig config;  // the plugin's own defaults where nothing was said, or with bad keys
};

// Fault::not_found: there is no plugstack.conf.
Error read_plugstack(const Options &options, Plugstack *plugstack);

}  // namespace vgpu::ctl
