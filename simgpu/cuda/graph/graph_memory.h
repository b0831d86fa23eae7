// Memory of graph allocation nodes: the address belongs to the node, the memory to whoever runs the graph.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

// An address for a node, with no memory behind it yet.
Area *reserve_graph_area(Driver *driver, Device *device, size_t bytes);
// Makes sure that this much can be put behind areas of each device, all or none. False: a device is exhausted.
bool reserve_graph_memory(Driver *driver, const std::map<Device *, uint64_t> &bytes);
// Puts memory behind it, first what earlier launches left over. False: the device is exhausted.
bool back_graph_area(Driver *driver, Area *area);
// Takes the memory away again; it stays cached for the next launch. The address stays the node's.
void release_graph_area(Area *area);
// A client or a node frees the address.
CUresult free_graph_address(Driver *driver, Area *area, CUdeviceptr address);
// The area's graph goes. Memory that a launch took and nobody freed stays until its address is freed.
void detach_graph_area(Driver *driver, Area *area);
void trim_graph_memory(Device *device);

}  // namespace simgpu
