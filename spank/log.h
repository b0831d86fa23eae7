// What the plugin says, and to whom: slurmd's log, or (from a step) also the user's terminal.
#pragma once

#include "node/site_config.h"

namespace vgpu::spank {

void set_log_level(node::LogLevel level);

// "vgpu: " is put before a sentence here, and nowhere else. log_error() from a step reaches the user.
__attribute__((format(printf, 1, 2))) void log_error(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_info(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_debug(const char *format, ...);
// From a step: to the terminal of the user, whatever the level.
__attribute__((format(printf, 1, 2))) void log_to_user(const char *format, ...);

}  // namespace vgpu::spank
