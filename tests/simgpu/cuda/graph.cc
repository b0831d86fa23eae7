#include "cuda/graph.h"

#include <algorithm>
#include <map>

#include "cuda/graph_memory.h"
#include "cuda/launch.h"

namespace simgpu {

Graph::~Graph() {
  magic = 0;
  for (auto &node : nodes) node->magic = 0;
}

Graph *valid_graph(CUgraph handle) {
  auto *graph = reinterpret_cast<Graph *>(handle);
  return graph != nullptr && graph->magic == kGraphMagic && !graph->destroyed ? graph : nullptr;
}

GraphNode *valid_node(CUgraphNode handle) {
  auto *node = reinterpret_cast<GraphNode *>(handle);
  return node != nullptr && node->magic == kNodeMagic ? node : nullptr;
}

GraphExec *valid_exec(CUgraphExec handle) {
  auto *exec = reinterpret_cast<GraphExec *>(handle);
  return exec != nullptr && exec->magic == kExecMagic ? exec : nullptr;
}

GraphNode *add_node(Graph *graph, std::unique_ptr<GraphNode> node, const std::vector<GraphNode *> &needs) {
  node->graph = graph;
  node->order = graph->next_order++;
  node->needs = needs;
  graph->nodes.push_back(std::move(node));
  return graph->nodes.back().get();
}

std::unique_ptr<Graph> clone_graph(const Graph &graph) {
  auto copy = std::make_unique<Graph>();
  copy->flags = graph.flags;
  copy->next_order = graph.next_order;
  copy->owns_areas = false;
  std::map<const GraphNode *, GraphNode *> twins;
  for (const auto &node : graph.nodes) {
    auto twin = std::make_unique<GraphNode>();
    twin->type = node->type;
    twin->graph = copy.get();
    twin->enabled = node->enabled;
    twin->order = node->order;
    twin->kernel = node->kernel;
    twin->context = node->context;
    twin->copy = node->copy;
    twin->copy_parameters = node->copy_parameters;
    twin->fill = node->fill;
    twin->fill_parameters = node->fill_parameters;
    twin->host = node->host;
    twin->event = node->event;
    twin->alloc = node->alloc;
    twin->area = node->area;
    twin->free_address = node->free_address;
    if (node->child != nullptr) twin->child = clone_graph(*node->child);
    twins[node.get()] = twin.get();
    copy->nodes.push_back(std::move(twin));
  }
  for (const auto &node : graph.nodes)
    for (GraphNode *need : node->needs)
      if (twins.count(need) != 0) twins[node.get()]->needs.push_back(twins[need]);
  return copy;
}

// Repeatedly takes, in the order they were added, the nodes whose needs are met.
bool order_nodes(const Graph &graph, std::vector<GraphNode *> *ordered) {
  std::map<GraphNode *, size_t> open;
  std::map<GraphNode *, std::vector<GraphNode *>> dependents;
  std::vector<GraphNode *> ready;
  for (const auto &node : graph.nodes) {
    open[node.get()] = node->needs.size();
    for (GraphNode *need : node->needs) dependents[need].push_back(node.get());
    if (node->needs.empty()) ready.push_back(node.get());
  }
  for (size_t i = 0; i < ready.size(); i++) {
    ordered->push_back(ready[i]);
    for (GraphNode *next : dependents[ready[i]])
      if (--open[next] == 0) ready.push_back(next);
  }
  return ordered->size() == graph.nodes.size();
}

bool holds_allocations(const Graph &graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto &node) {
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || (node->child != nullptr && holds_allocations(*node->child));
  });
}

CUresult prepare_alloc_node(Driver *driver, GraphNode *node) {
  const CUmemPoolProps &properties = node->alloc.poolProps;
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || node->alloc.bytesize == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Device *device = driver->device(properties.location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  node->area = reserve_graph_area(driver, device, node->alloc.bytesize);
  if (node->area == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  node->alloc.dptr = node->area->base;
  return CUDA_SUCCESS;
}

void release_graph(Driver *driver, Graph *graph) {
  if (graph->instances > 0 || !graph->destroyed) return;
  for (auto &node : graph->nodes) {
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && graph->owns_areas && node->area != nullptr)
      delete_graph_area(driver, node->area);
    if (node->child != nullptr) {
      node->child->destroyed = true;
      release_graph(driver, node->child.release());
    }
  }
  delete graph;
}

namespace {

CUresult run_node(Driver *driver, Stream *stream, GraphNode *node);

CUresult run_graph(Driver *driver, Stream *stream, const std::vector<GraphNode *> &ordered) {
  for (GraphNode *node : ordered)
    if (CUresult result = run_node(driver, stream, node)) return result;
  return CUDA_SUCCESS;
}

CUresult run_node(Driver *driver, Stream *stream, GraphNode *node) {
  if (!node->enabled) return CUDA_SUCCESS;
  Device *device = stream->context->device;
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      count_launch(stream->context);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      CopyJob job = node->copy;
      submit(stream, [=] { run_job(driver, device, job); });
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      FillJob job = node->fill;
      submit(stream, [=] { run_fill(driver, device, job); });
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      CUDA_HOST_NODE_PARAMS host = node->host;
      enqueue(stream, [host] { host.fn(host.userData); });
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      std::vector<GraphNode *> ordered;
      order_nodes(*node->child, &ordered);
      return run_graph(driver, stream, ordered);
    }
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      record_event(stream, node->event);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      wait_for_event(stream, node->event);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      DriverLock lock(driver->mutex);
      return back_graph_area(driver, node->area) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      CUdeviceptr address = node->free_address;
      submit(stream, [=] {
        DriverLock lock(driver->mutex);
        free_address(driver, address);
      });
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_SUCCESS;
  }
}

// Memory that the last launch took and nobody freed since.
void free_unfreed(Driver *driver, const std::vector<GraphNode *> &ordered) {
  DriverLock lock(driver->mutex);
  for (GraphNode *node : ordered)
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !node->area->blocks.empty())
      release_graph_area(driver, node->area);
}

}  // namespace

CUresult launch_graph(Driver *driver, Stream *stream, GraphExec *exec) {
  if ((exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) free_unfreed(driver, exec->ordered);
  for (GraphNode *node : exec->ordered)
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !node->area->blocks.empty()) {
      // An earlier launch's allocation is still there: launching again would leak it.
      return CUDA_ERROR_INVALID_VALUE;
    }
  return run_graph(driver, stream, exec->ordered);
}

}  // namespace simgpu
