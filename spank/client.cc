// srun, sbatch and salloc: the options are offered, and bad ones refused before anything is submitted.
#include <unistd.h>

#include "contexts.h"
#include "log.h"
#include "node/site_config.h"
#include "options.h"

namespace vgpu::spank::client {

namespace {

node::SiteConfig config;

int refuse(const Error &error) {
  log_error("%s", error.text);
  return -1;
}

// Each value by itself, so that Slurm names the option; all of them together in init_post_opt().
int on_value(int option, const char *value, int /*remote*/) {
  RawOptions options;
  set_option(option, value, &options);
  Request request;
  if (Error error = parse_request(options, &request)) return refuse(error);
  return 0;
}

}  // namespace

int init(spank_t handle, Arguments arguments) {
  if (spank_context() == S_CTX_ALLOCATOR) unset_enclosing_job();  // before Slurm looks for options in there
  if (Error error = node::SiteConfig::parse(arguments.count, arguments.values, &config)) return refuse(error);
  set_log_level(config.log);
  return register_options(handle, on_value) ? 0 : -1;
}

int init_post_opt(spank_t handle) {
  const RawOptions options = options_to_send(handle);
  Request request;
  if (Error error = parse_request(options, &request)) return refuse(error);
  if (Error error = check_against_site(request, config, getuid())) return refuse(error);
  return 0;
}

}  // namespace vgpu::spank::client
