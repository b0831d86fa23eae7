// slurmd: the region directory is made, the GPUs are looked up once, and somebody is set to watch the jobs.
#include "contexts.h"
#include "devices.h"
#include "log.h"
#include "node/site_config.h"
#include "node/watcher.h"
#include "region_dir.h"

namespace vgpu::spank::slurmd {

int init(Arguments arguments) {
  node::SiteConfig config;
  if (Error error = node::SiteConfig::parse(arguments.count, arguments.values, &config)) {
    log_error("%s", error.text);
    return -1;
  }
  set_log_level(config.log);
  Error error = make_region_dir(config);
  if (!error) error = clean_region_dir(config);
  // Jobs without limits can still run; those with limits will be told.
  if (error) {
    log_error("%s", error.text);
    return 0;
  }
  log_info(PACKAGE_VERSION ": regions in %s, library %s", config.region_dir.c_str(), config.library.c_str());
  refresh_node_in_background(config);
  const std::vector<std::string> keys(arguments.values, arguments.values + arguments.count);
  if ((error = start_watcher(config, keys))) log_info("nobody watches the jobs of this node: %s", error.text);
  return 0;
}

}  // namespace vgpu::spank::slurmd
