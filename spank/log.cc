#include "log.h"

#include <cstdarg>
#include <cstdio>

#include "node/printable.h"
#include "slurm.h"

namespace vgpu::spank {

namespace {

node::LogLevel log_level = node::LogLevel::info;

using Sink = void (*)(const char *format, ...);

void write(Sink sink, const char *format, std::va_list arguments) {
  char line[1024];
  std::vsnprintf(line, sizeof line, format, arguments);
  sink("vgpu: %s", node::printable(line).c_str());
}

}  // namespace

void set_log_level(node::LogLevel level) { log_level = level; }

void log_error(const char *format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  write(slurm_error, format, arguments);
  va_end(arguments);
}

void log_info(const char *format, ...) {
  if (log_level < node::LogLevel::info) return;
  std::va_list arguments;
  va_start(arguments, format);
  write(slurm_info, format, arguments);
  va_end(arguments);
}

void log_debug(const char *format, ...) {
  if (log_level < node::LogLevel::debug) return;
  std::va_list arguments;
  va_start(arguments, format);
  write(slurm_info, format, arguments);
  va_end(arguments);
}

void log_to_user(const char *format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  write(slurm_spank_log, format, arguments);
  va_end(arguments);
}

}  // namespace vgpu::spank
