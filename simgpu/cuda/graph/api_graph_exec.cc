// Instantiating, updating and launching graphs; the generic node calls of CUDA 12; graph memory of a device.
#include <cstring>

#include "simgpu/cuda/graph/capture.h"
#include "simgpu/cuda/graph/graph.h"
#include "simgpu/cuda/graph/graph_memory.h"
#include "simgpu/cuda/memory/pool.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  if (graph == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Two instances would share the addresses of the graph's allocations.
  if (holds_allocations(*graph) && graph->instances > 0) return CUDA_ERROR_NOT_SUPPORTED;
  auto *exec = new GraphExec;
  exec->copy = clone_graph(*graph);
  exec->source = graph;
  exec->flags = flags;
  if (!order_nodes(*exec->copy, &exec->ordered)) {
    delete exec;
    return CUDA_ERROR_INVALID_VALUE;
  }
  graph->instances++;
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  GraphExec *exec = valid_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream *stream = find_stream(driver, context, stream_handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (stream->capture != nullptr) {
    // As a child graph, which may not hold allocations; their addresses are this instance's.
    if (holds_allocations(*exec->copy)) return CUDA_ERROR_NOT_SUPPORTED;
    auto node = std::make_unique<GraphNode>();
    node->type = CU_GRAPH_NODE_TYPE_GRAPH;
    node->child = clone_graph(*exec->copy);
    return capture_node(driver, stream, std::move(node));
  }
  return launch_graph(driver, stream, exec);
}

CUresult update(CUgraphExec handle, CUgraph graph_handle, bool *topology_changed) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphExec *exec = valid_exec(handle);
  Graph *graph = valid_graph(graph_handle);
  *topology_changed = false;
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!same_shape(*exec->copy, *graph)) {
    *topology_changed = true;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  if (holds_allocations(*graph)) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  exec->copy = clone_graph(*graph);
  exec->ordered.clear();
  order_nodes(*exec->copy, &exec->ordered);
  return CUDA_SUCCESS;
}

// A child that becomes the parent's own may hold allocations; their addresses go with it.
CUresult move_child(CUgraphNode *out, CUgraph handle, const CUgraphNode *needs, size_t count, CUgraph child_handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  Graph *child = valid_graph(child_handle);
  if (graph == nullptr || child == nullptr || graph == child || out == nullptr || child->instances > 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode *> list;
  for (size_t i = 0; i < count; i++) {
    GraphNode *need = valid_node(needs[i]);
    if (need == nullptr || need->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    list.push_back(need);
  }
  auto node = std::make_unique<GraphNode>();
  node->type = CU_GRAPH_NODE_TYPE_GRAPH;
  node->child.reset(child);
  *out = reinterpret_cast<CUgraphNode>(add_node(graph, std::move(node), list));
  return CUDA_SUCCESS;
}

CUresult add_generic(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count, CUgraphNodeParams *p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto context = reinterpret_cast<CUcontext>(top_context());
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS params{};
      memcpy(&params, &p->kernel, sizeof params);
      return cuGraphAddKernelNode_v2(node, graph, needs, count, &params);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return cuGraphAddMemcpyNode(node, graph, needs, count, &p->memcpy.copyParams,
                                  p->memcpy.copyCtx != nullptr ? p->memcpy.copyCtx : context);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS params{p->memset.dst,         p->memset.pitch, p->memset.value,
                                     p->memset.elementSize, p->memset.width, p->memset.height};
      return cuGraphAddMemsetNode(node, graph, needs, count, &params,
                                  p->memset.ctx != nullptr ? p->memset.ctx : context);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      CUDA_HOST_NODE_PARAMS params{p->host.fn, p->host.userData};
      return cuGraphAddHostNode(node, graph, needs, count, &params);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
                 ? move_child(node, graph, needs, count, p->graph.graph)
                 : cuGraphAddChildGraphNode(node, graph, needs, count, p->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return cuGraphAddEmptyNode(node, graph, needs, count);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return cuGraphAddEventRecordNode(node, graph, needs, count, p->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return cuGraphAddEventWaitNode(node, graph, needs, count, p->eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS params{};
      params.poolProps = p->alloc.poolProps;
      params.bytesize = p->alloc.bytesize;
      CUresult result = cuGraphAddMemAllocNode(node, graph, needs, count, &params);
      if (result == CUDA_SUCCESS) p->alloc.dptr = params.dptr;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return cuGraphAddMemFreeNode(node, graph, needs, count, p->free.dptr);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

extern "C" {

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                        CUgraphNodeParams *p) {
  return add_generic(node, graph, needs, count, p);
}
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *,
                           size_t count, CUgraphNodeParams *p) {
  return add_generic(node, graph, needs, count, p);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *, char *, size_t) {
  return instantiate(exec, graph, 0);
}
CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *, char *, size_t) {
  return instantiate(exec, graph, 0);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph, flags);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = instantiate(exec, graph, params->flags);
  params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  params->hErrNode_out = nullptr;
  return result;
}
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return cuGraphInstantiateWithParams(exec, graph, params);
}
CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags) {
  GraphExec *exec = valid_exec(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphExec *exec = valid_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  exec->source->instances--;
  release_graph(driver, exec->source);
  exec->magic = 0;
  delete exec;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *outcome) {
  bool topology = false;
  CUresult result = update(exec, graph, &topology);
  if (error != nullptr) *error = nullptr;
  if (outcome != nullptr)
    *outcome = result == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS
               : topology             ? CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
                                      : CU_GRAPH_EXEC_UPDATE_ERROR;
  return result;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
  CUgraphExecUpdateResult outcome;
  CUresult result = cuGraphExecUpdate(exec, graph, nullptr, &outcome);
  if (info != nullptr) *info = {outcome, nullptr, nullptr};
  return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) { return launch(exec, stream, false); }
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) { return launch(exec, stream, true); }

CUresult cuGraphUpload(CUgraphExec handle, CUstream) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  GraphExec *exec = valid_exec(handle);
  return exec != nullptr ? upload_graph(driver, exec) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) { return cuGraphUpload(exec, stream); }

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  trim_graph_memory(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const GraphMemory &memory = device->graph_memory;
  auto *out = static_cast<cuuint64_t *>(value);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *out = memory.used_bytes;
      break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *out = memory.used_high;
      break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *out = memory.reserved_bytes();
      break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *out = memory.reserved_high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Device *device = driver->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || *static_cast<cuuint64_t *>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  GraphMemory &memory = device->graph_memory;
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
    memory.used_high = memory.used_bytes;
  else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    memory.reserved_high = memory.reserved_bytes();
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // extern "C"
