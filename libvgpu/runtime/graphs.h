// What the graphs of this process will take when they are launched.
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/cuda_api.h"

namespace vgpu::runtime {

// Some graph of this process has a node that allocates. Until then graphs cost nothing.
extern std::atomic<bool> graphs_allocate;
void note_graph_allocates();

// After `exec` was made from, or changed to, `graph`: adds up the nodes that allocate, also in child graphs.
void graph_instantiated(CUgraphExec exec, CUgraph graph);
void graph_destroyed(CUgraphExec exec);

// What one launch takes at most on a device, in bytes.
std::uint64_t launch_bytes(CUgraphExec exec, CUdevice ordinal);

}  // namespace vgpu::runtime
