// What the plugin says, and to whom: slurmd's log, or (from a step) also the user's terminal.
#pragma once

#include "node/site_config.h"

namespace vgpu::spank {

void set_log_level(node::LogLevel level);

// With log=debug, and only then, slurmd's log has what was seen and decided for each job and step. Nothing of it is for
// users: log_debug() must not be called in srun, sbatch and salloc, which show whatever is logged.
//
// "vgpu: " is put before a sentence here, and nowhere else; whatever a terminal could take for an order becomes "?". log_error() from a step reaches the user.
__attribute__((format(printf, 1, 2))) void log_error(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_info(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_debug(const char *format, ...);
// From a step: to the terminal of the user, whatever the level.
__attribute__((format(printf, 1, 2))) void log_to_user(const char *format, ...);

}  // namespace vgpu::spank
