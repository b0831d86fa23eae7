// Building graphs: creation, the typed node calls, edges and their queries.
#include <algorithm>

#include "simgpu/cuda/graph/graph.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

bool collect(Graph *graph, const CUgraphNode *handles, size_t count, std::vector<GraphNode *> *out) {
  if (count != 0 && handles == nullptr) return false;
  for (size_t i = 0; i < count; i++) {
    GraphNode *node = valid_node(handles[i]);
    if (node == nullptr || node->graph != graph) return false;
    out->push_back(node);
  }
  return true;
}

// What every cuGraphAdd*Node call does once its node is filled in.
CUresult add(CUgraphNode *out, CUgraph graph_handle, const CUgraphNode *needs, size_t count,
             std::unique_ptr<GraphNode> node) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(graph_handle);
  std::vector<GraphNode *> list;
  if (graph == nullptr || out == nullptr || !collect(graph, needs, count, &list)) return CUDA_ERROR_INVALID_VALUE;
  if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    if (CUresult result = prepare_alloc_node(driver, node.get())) return result;
  *out = reinterpret_cast<CUgraphNode>(add_node(graph, std::move(node), list));
  return CUDA_SUCCESS;
}

std::unique_ptr<GraphNode> make(CUgraphNodeType type) {
  auto node = std::make_unique<GraphNode>();
  node->type = type;
  return node;
}

CUresult list_nodes(const std::vector<GraphNode *> &from, CUgraphNode *to, size_t *count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (to != nullptr)
    for (size_t i = 0; i < *count; i++) to[i] = i < from.size() ? reinterpret_cast<CUgraphNode>(from[i]) : nullptr;
  *count = to == nullptr ? from.size() : std::min(*count, from.size());
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *graph = reinterpret_cast<CUgraph>(new Graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  graph->destroyed = true;
  release_graph(driver, graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph original) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(original);
  if (graph == nullptr || clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (holds_allocations(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  *clone = reinterpret_cast<CUgraph>(clone_graph(*graph).release());
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count) {
  return add(node, graph, needs, count, make(CU_GRAPH_NODE_TYPE_EMPTY));
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *params) {
  if (params == nullptr || (params->func == nullptr && params->kern == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  auto fresh = make(CU_GRAPH_NODE_TYPE_KERNEL);
  set_kernel(fresh.get(), *params);
  return add(node, graph, needs, count, std::move(fresh));
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide{};
  static_assert(sizeof(*params) <= sizeof wide);
  __builtin_memcpy(&wide, params, sizeof *params);
  return cuGraphAddKernelNode_v2(node, graph, needs, count, &wide);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_MEMCPY3D *params, CUcontext ctx) {
  if (params == nullptr || valid_context(ctx) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto fresh = make(CU_GRAPH_NODE_TYPE_MEMCPY);
  fresh->copy_parameters = *params;
  fresh->copy = job_from_3d(*params);
  fresh->context = valid_context(ctx);
  return add(node, graph, needs, count, std::move(fresh));
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx) {
  if (params == nullptr || valid_context(ctx) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  auto fresh = make(CU_GRAPH_NODE_TYPE_MEMSET);
  fresh->fill_parameters = *params;
  fresh->fill = fill_of(*params);
  fresh->context = valid_context(ctx);
  return add(node, graph, needs, count, std::move(fresh));
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                            const CUDA_HOST_NODE_PARAMS *params) {
  if (params == nullptr || params->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto fresh = make(CU_GRAPH_NODE_TYPE_HOST);
  fresh->host = *params;
  return add(node, graph, needs, count, std::move(fresh));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                  CUgraph child) {
  Graph *inner = valid_graph(child);
  if (inner == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (holds_allocations(*inner)) return CUDA_ERROR_NOT_SUPPORTED;
  auto fresh = make(CU_GRAPH_NODE_TYPE_GRAPH);
  fresh->child = clone_graph(*inner);
  return add(node, graph, needs, count, std::move(fresh));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                   CUevent event) {
  if (valid_event(event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto fresh = make(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  fresh->event = valid_event(event)->state;
  return add(node, graph, needs, count, std::move(fresh));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                 CUevent event) {
  if (valid_event(event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto fresh = make(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  fresh->event = valid_event(event)->state;
  return add(node, graph, needs, count, std::move(fresh));
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto fresh = make(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  fresh->alloc = *params;
  CUgraphNode added;
  CUresult result = add(&added, graph, needs, count, std::move(fresh));
  if (result != CUDA_SUCCESS) return result;
  params->dptr = valid_node(added)->alloc.dptr;
  if (node != nullptr) *node = added;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                               CUdeviceptr dptr) {
  auto fresh = make(CU_GRAPH_NODE_TYPE_MEM_FREE);
  fresh->free_address = dptr;
  return add(node, graph, needs, count, std::move(fresh));
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  GraphNode *node = valid_node(handle);
  if (node == nullptr || params == nullptr || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    return CUDA_ERROR_INVALID_VALUE;
  *params = node->alloc;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *dptr) {
  GraphNode *node = valid_node(handle);
  if (node == nullptr || dptr == nullptr || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE) return CUDA_ERROR_INVALID_VALUE;
  *dptr = node->free_address;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
  GraphNode *node = valid_node(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode *> all;
  for (auto &node : graph->nodes) all.push_back(node.get());
  return list_nodes(all, nodes, count);
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode *> roots;
  for (auto &node : graph->nodes)
    if (node->needs.empty()) roots.push_back(node.get());
  return list_nodes(roots, nodes, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *nodes, size_t *count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = valid_node(handle);
  return node != nullptr ? list_nodes(node->needs, nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (data != nullptr && from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode *> first, second;
  for (auto &node : graph->nodes)
    for (GraphNode *need : node->needs) {
      first.push_back(need);
      second.push_back(node.get());
    }
  if (data != nullptr) std::fill_n(data, *count, CUgraphEdgeData{});
  size_t room = *count;
  list_nodes(first, from, &room);
  return list_nodes(second, to, count);
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
  return cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}

CUresult cuGraphAddDependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  std::vector<GraphNode *> first, second;
  if (graph == nullptr || !collect(graph, from, count, &first) || !collect(graph, to, count, &second))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) second[i]->needs.push_back(first[i]);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  GraphNode *node = valid_node(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Allocations stay with their graph until it goes.
  if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
    return CUDA_ERROR_NOT_SUPPORTED;
  Graph *graph = node->graph;
  for (auto &other : graph->nodes) std::erase(other->needs, node);
  std::erase_if(graph->nodes, [node](const auto &entry) { return entry.get() == node; });
  return CUDA_SUCCESS;
}

}  // extern "C"
