// What the tools say on stderr.
#pragma once

namespace vgpu::node {

// A sentence without its line end. "vgpu: " is put before it here, and nowhere else.
__attribute__((format(printf, 1, 2))) void print_error(const char *format, ...);

}  // namespace vgpu::node
