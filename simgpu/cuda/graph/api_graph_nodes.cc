// Nodes after they were added: their child graphs, and new parameters for them in a graph or an instance of it.
#include <cstring>

#include "simgpu/cuda/graph/graph.h"
#include "simgpu/cuda/memory/transfer.h"

using namespace simgpu;

namespace {

CUresult set_kernel_params(GraphNode *node, const CUDA_KERNEL_NODE_PARAMS *params) {
  if (node == nullptr || params == nullptr || node->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
  if (params->func == nullptr && params->kern == nullptr) return CUDA_ERROR_INVALID_VALUE;
  set_kernel(node, *params);
  return CUDA_SUCCESS;
}

// The first version is the beginning of the second.
bool widen(const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUDA_KERNEL_NODE_PARAMS *wide) {
  *wide = {};
  if (params == nullptr) return false;
  memcpy(wide, params, sizeof *params);
  return true;
}

bool is_one_row(const CUDA_MEMCPY3D &copy) { return copy.Height <= 1 && copy.Depth <= 1; }

// What may change without changing what the graph is: the type stays, and so does the memory of its nodes.
CUresult set_params(GraphNode *node, const CUgraphNodeParams *p) {
  if (node == nullptr || p == nullptr || p->type != node->type) return CUDA_ERROR_INVALID_VALUE;
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      memcpy(&kernel, &p->kernel, sizeof kernel);
      return set_kernel_params(node, &kernel);
    }
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

// The arguments that are returned are the node's.
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = valid_node(handle);
  if (node == nullptr || params == nullptr || node->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
  *params = node->kernel;
  return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUDA_KERNEL_NODE_PARAMS wide;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuGraphKernelNodeGetParams_v2(handle, &wide);
  if (result == CUDA_SUCCESS) memcpy(params, &wide, sizeof *params);
  return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  return set_kernel_params(valid_node(handle), params);
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUDA_KERNEL_NODE_PARAMS wide;
  return widen(params, &wide) ? cuGraphKernelNodeSetParams_v2(handle, &wide) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode handle,
                                           const CUDA_KERNEL_NODE_PARAMS *params) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  return set_kernel_params(instance_node(valid_exec(exec), handle), params);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  CUDA_KERNEL_NODE_PARAMS wide;
  return widen(params, &wide) ? cuGraphExecKernelNodeSetParams_v2(exec, handle, &wide) : CUDA_ERROR_INVALID_VALUE;
}

// Only copies of one row can change in an instance, and only into such.
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode handle, const CUDA_MEMCPY3D *params,
                                        CUcontext ctx) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = instance_node(valid_exec(exec), handle);
  if (node == nullptr || params == nullptr || node->type != CU_GRAPH_NODE_TYPE_MEMCPY || valid_context(ctx) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (node->copy.height > 1 || node->copy.depth > 1 || !is_one_row(*params)) return CUDA_ERROR_INVALID_VALUE;
  node->copy_parameters = *params;
  node->copy = job_from_3d(*params);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS *params,
                                        CUcontext ctx) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = instance_node(valid_exec(exec), handle);
  if (node == nullptr || params == nullptr || node->type != CU_GRAPH_NODE_TYPE_MEMSET || valid_context(ctx) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  node->fill_parameters = *params;
  node->fill = fill_of(*params);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode handle, const CUDA_HOST_NODE_PARAMS *params) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = instance_node(valid_exec(exec), handle);
  if (node == nullptr || params == nullptr || params->fn == nullptr || node->type != CU_GRAPH_NODE_TYPE_HOST)
    return CUDA_ERROR_INVALID_VALUE;
  node->host = *params;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int enabled) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = instance_node(valid_exec(exec), handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int *enabled) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = instance_node(valid_exec(exec), handle);
  if (node == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *enabled = node->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraph child) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  return set_child(instance_node(valid_exec(exec), handle), child);
}

}  // extern "C"
