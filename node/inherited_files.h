// For a process that outlives its parent or may hang: it must not hold on to anything of its parent's.
#pragma once

namespace vgpu::node {

// All but the three standard streams. Allocates nothing, so it may be called after fork() in a process with threads.
void close_inherited_files();

}  // namespace vgpu::node
