// Lines on stderr: rare, whole, and only there.
//
// VGPU_LOG says how much (error, warn, info, debug; default warn). A line goes out in one write, to the file that was
// stderr when the program started and to no other: a program that closed it may have opened its data under that number.
#pragma once

#include <cstdint>

namespace vgpu::runtime {

enum class LogLevel : std::uint8_t { error, warn, info, debug };

// `text` without a line end. Whoever decides that something is wrong logs it, once.
void log_text(LogLevel level, const char *text);
__attribute__((format(printf, 2, 3))) void log_format(LogLevel level, const char *format, ...);
bool is_logged(LogLevel level);

}  // namespace vgpu::runtime
