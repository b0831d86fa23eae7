// Nodes after they were added: their child graphs, and new parameters for them in a graph or an instance of it.
#include <cstring>

#include "simgpu/cuda/graph/graph.h"
#include "simgpu/cuda/memory/transfer.h"

using namespace simgpu;

namespace {

// What may change without changing what the graph is: the type stays, and so does the memory of its nodes.
CUresult set_params(GraphNode *node, const CUgraphNodeParams *p) {
  if (node == nullptr || p == nullptr || p->type != node->type) return CUDA_ERROR_INVALID_VALUE;
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      memcpy(&node->kernel, &p->kernel, sizeof node->kernel);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      node->copy_parameters = p->memcpy.copyParams;
      node->copy = job_from_3d(p->memcpy.copyParams);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      node->fill_parameters = {p->memset.dst,         p->memset.pitch, p->memset.value,
                               p->memset.elementSize, p->memset.width, p->memset.height};
      node->fill = fill_of(node->fill_parameters);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
      node->host = {p->host.fn, p->host.userData};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Expects the lock. A child's allocations cannot be exchanged.
CUresult set_child(GraphNode *node, CUgraph handle) {
  Graph *child = valid_graph(handle);
  if (node == nullptr || child == nullptr || node->type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
  if (!same_shape(*node->child, *child) || holds_allocations(*child) || holds_allocations(*node->child))
    return CUDA_ERROR_INVALID_VALUE;
  node->child = clone_graph(*child);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// The child that the node owns; it is not the caller's to destroy.
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *graph) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = valid_node(handle);
  if (node == nullptr || graph == nullptr || node->type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
  *graph = reinterpret_cast<CUgraph>(node->child.get());
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams *params) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  return set_params(valid_node(handle), params);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams *params) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = instance_node(valid_exec(exec), handle);
  if (node != nullptr && params != nullptr && params->type == CU_GRAPH_NODE_TYPE_GRAPH)
    return set_child(node, params->graph.graph);
  return set_params(node, params);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraph child) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  return set_child(instance_node(valid_exec(exec), handle), child);
}

}  // extern "C"
