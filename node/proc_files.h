// What /proc tells of a process.
#pragma once

#include <string>

namespace vgpu::node {

// Files in /proc have no size to begin with. Empty when there is no such process.
std::string read_proc_file(int pid, const char *file);
// Fit for a terminal, see printable.h.
std::string process_name(int pid);

}  // namespace vgpu::node
