// Memory of graph allocation nodes: the address belongs to the node, the memory to whoever runs the graph.
#pragma once

#include "cuda/core.h"

namespace simgpu {

// An address for a node, with no memory behind it yet.
Area *reserve_graph_area(Driver *driver, Device *device, size_t bytes);
// Puts memory behind it, first what earlier launches left over. False: the device is exhausted.
bool back_graph_area(Driver *driver, Area *area);
// Takes the memory away again; it stays cached for the next launch. The address stays the node's.
CUresult release_graph_area(Driver *driver, Area *area);
void delete_graph_area(Driver *driver, Area *area);
void trim_graph_memory(Device *device);

}  // namespace simgpu
