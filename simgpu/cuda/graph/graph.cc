#include "simgpu/cuda/graph/graph.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "simgpu/cuda/graph/graph_memory.h"
#include "simgpu/cuda/graph/user_object.h"
#include "simgpu/cuda/launch/kernel_time.h"
#include "simgpu/cuda/launch/prepare.h"
#include "simgpu/cuda/module/library.h"

namespace simgpu {

Graph::~Graph() {
  magic = 0;
  for (auto [object, count] : objects) release_user_object(object, count);
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
  copy->objects = graph.objects;
  for (auto [object, count] : copy->objects) object->references += count;
  std::map<const GraphNode *, GraphNode *> twins;
  for (const auto &node : graph.nodes) {
    auto twin = std::make_unique<GraphNode>();
    twin->type = node->type;
    twin->graph = copy.get();
    twin->enabled = node->enabled;
    twin->order = node->order;
    twin->kernel = node->kernel;
    twin->arguments = node->arguments;
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

GraphNode *instance_node(GraphExec *exec, CUgraphNode handle) {
  GraphNode *node = valid_node(handle);
  if (exec == nullptr || node == nullptr) return nullptr;
  for (GraphNode *twin : exec->ordered)
    if (twin->order == node->order && twin->type == node->type) return twin;
  return nullptr;
}

bool same_shape(const Graph &a, const Graph &b) {
  if (a.nodes.size() != b.nodes.size()) return false;
  for (size_t i = 0; i < a.nodes.size(); i++)
    if (a.nodes[i]->type != b.nodes[i]->type || a.nodes[i]->needs.size() != b.nodes[i]->needs.size()) return false;
  return true;
}

namespace {

CUfunction handle_of(const CUDA_KERNEL_NODE_PARAMS &params) {
  return params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
}

const ImageKernel *image_of(const CUDA_KERNEL_NODE_PARAMS &params) {
  auto *function = reinterpret_cast<Function *>(handle_of(params));
  if (function->magic == kFunctionMagic) return &function->kernel;
  auto *kernel = reinterpret_cast<Kernel *>(function);
  return kernel->magic == kKernelMagic ? &kernel->image : nullptr;
}

// The buffer that a list of `extra` options names; false when it names none.
bool find_buffer(void **extra, const void **buffer, size_t *length) {
  *buffer = nullptr;
  *length = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) *buffer = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) *length = *static_cast<size_t *>(extra[1]);
  }
  return *buffer != nullptr;
}

void copy_parameters(const ImageKernel &image, void **given, KernelArguments *out) {
  for (auto [offset, size] : image.parameters) out->length = std::max<size_t>(out->length, offset + size);
  out->bytes.resize(out->length);
  for (size_t i = 0; i < image.parameters.size(); i++) {
    auto [offset, size] = image.parameters[i];
    memcpy(out->bytes.data() + offset, given[i], size);
    out->pointers.push_back(out->bytes.data() + offset);
  }
}

}  // namespace

void set_kernel(GraphNode *node, const CUDA_KERNEL_NODE_PARAMS &params) {
  auto own = std::make_shared<KernelArguments>();
  node->kernel = params;
  node->kernel.kernelParams = nullptr;
  node->kernel.extra = nullptr;
  const ImageKernel *image = image_of(params);
  const void *buffer;
  size_t length;
  if (params.kernelParams != nullptr && image != nullptr) {
    copy_parameters(*image, params.kernelParams, own.get());
    node->kernel.kernelParams = own->pointers.data();
  } else if (params.extra != nullptr && find_buffer(params.extra, &buffer, &length)) {
    own->bytes.assign(static_cast<const char *>(buffer), length);
    own->length = length;
    void *const options[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, own->bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                             &own->length, CU_LAUNCH_PARAM_END};
    std::copy(std::begin(options), std::end(options), own->extra);
    node->kernel.extra = own->extra;
  }
  node->arguments = own;
}

FillJob fill_of(const CUDA_MEMSET_NODE_PARAMS &p) {
  FillJob job;
  job.address = p.dst;
  job.value = p.value;
  job.element = p.elementSize;
  job.width = p.width;
  job.height = p.height;
  job.pitch = p.pitch;
  return job;
}

CUresult prepare_alloc_node(Driver *driver, GraphNode *node) {
  const CUmemPoolProps &properties = node->alloc.poolProps;
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || node->alloc.bytesize == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Device *device = driver->device(properties.location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  // More than the device can ever have; it would also overflow when it is rounded up.
  if (node->alloc.bytesize > device->blocks.total_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  node->area = reserve_graph_area(driver, device, node->alloc.bytesize);
  if (node->area == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  node->alloc.dptr = node->area->base;
  return CUDA_SUCCESS;
}

void release_graph(Driver *driver, Graph *graph) {
  if (graph->instances > 0 || !graph->destroyed) return;
  for (auto &node : graph->nodes) {
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && graph->owns_areas && node->area != nullptr)
      detach_graph_area(driver, node->area);
    if (node->child != nullptr) {
      node->child->destroyed = true;
      release_graph(driver, node->child.release());
    }
  }
  delete graph;
}

namespace {

KernelWork work_of(Driver *driver, Context *context, const GraphNode &node) {
  const Function *function = resolve_function(driver, context, handle_of(node.kernel));
  if (function == nullptr) return {};
  const CUDA_KERNEL_NODE_PARAMS &kernel = node.kernel;
  const uint64_t blocks = uint64_t{kernel.gridDimX} * kernel.gridDimY * kernel.gridDimZ;
  const uint64_t threads = uint64_t{kernel.blockDimX} * kernel.blockDimY * kernel.blockDimZ;
  return {duration_ns(function, blocks), occupied_sms(function, blocks, threads)};
}

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
      launch_kernel(stream, work_of(driver, stream->context, *node));
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
      enqueue(stream, ItemKind::kHold, [host] { host.fn(host.userData); });
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

// All nodes in the order in which they run, those of child graphs in their place.
std::vector<GraphNode *> flatten(const std::vector<GraphNode *> &ordered) {
  std::vector<GraphNode *> all;
  for (GraphNode *node : ordered) {
    all.push_back(node);
    if (node->child == nullptr || !node->enabled) continue;
    std::vector<GraphNode *> inner;
    order_nodes(*node->child, &inner);
    for (GraphNode *child : flatten(inner)) all.push_back(child);
  }
  return all;
}

std::vector<Area *> areas_of(const std::vector<GraphNode *> &nodes) {
  std::vector<Area *> areas;
  for (GraphNode *node : nodes)
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->enabled) areas.push_back(node->area);
  return areas;
}

bool any_backed(const std::vector<Area *> &areas) {
  return std::any_of(areas.begin(), areas.end(), [](Area *area) { return !area->blocks.empty(); });
}

void release_backed(const std::vector<Area *> &areas) {
  for (Area *area : areas)
    if (!area->blocks.empty()) release_graph_area(area);
}

// The most that a launch holds at one time, by device. A free makes room for later nodes of the same launch only if it runs
// when it is submitted, not behind a host function or other work that waits.
std::map<Device *, uint64_t> peak_of(const std::vector<GraphNode *> &nodes, bool waiting) {
  std::map<Device *, uint64_t> held, peak;
  std::map<CUdeviceptr, Area *> live;
  for (GraphNode *node : nodes) {
    if (!node->enabled) continue;
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      Device *device = node->area->device;
      live[node->area->base] = node->area;
      held[device] += node->area->bytes;
      peak[device] = std::max(peak[device], held[device]);
    } else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      auto freed = live.find(node->free_address);
      if (waiting || freed == live.end()) continue;
      held[freed->second->device] -= freed->second->bytes;
      live.erase(freed);
    } else if (node->type == CU_GRAPH_NODE_TYPE_HOST || node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ||
               node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
      waiting = true;
    }
  }
  return peak;
}

// All that can be refused is refused before the first node runs, and a refused launch keeps nothing.
CUresult prepare_launch(Driver *driver, Stream *stream, GraphExec *exec, const std::vector<Area *> &areas) {
  DriverLock lock(driver->mutex);
  if ((exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) release_backed(areas);
  // An earlier launch's allocation is still there: launching again would leak it.
  if (any_backed(areas)) return CUDA_ERROR_INVALID_VALUE;
  auto peak = peak_of(flatten(exec->ordered), !is_idle(stream));
  return reserve_graph_memory(driver, peak) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// The kernels' code and local memory, before the first of them runs.
CUresult prepare_kernels(Driver *driver, Context *context, const std::vector<GraphNode *> &nodes) {
  if (!context->device->launches_cost) return CUDA_SUCCESS;
  for (GraphNode *node : nodes) {
    if (node->type != CU_GRAPH_NODE_TYPE_KERNEL || !node->enabled) continue;
    Function *function = resolve_function(driver, context, handle_of(node->kernel));
    if (function == nullptr) continue;
    if (CUresult result = prepare_function(driver, function)) return result;
  }
  spend(context->device, context->device->facts().launch_ns);
  return CUDA_SUCCESS;
}

bool any_backed_now(Driver *driver, const std::vector<Area *> &areas) {
  DriverLock lock(driver->mutex);
  return any_backed(areas);
}

}  // namespace

CUresult upload_graph(Driver *driver, GraphExec *exec) {
  DriverLock lock(driver->mutex);
  auto nodes = flatten(exec->ordered);
  // What an earlier launch has not freed yet is there already.
  if (any_backed(areas_of(nodes))) return CUDA_SUCCESS;
  return reserve_graph_memory(driver, peak_of(nodes, false)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult launch_graph(Driver *driver, Stream *stream, GraphExec *exec) {
  const std::vector<GraphNode *> nodes = flatten(exec->ordered);
  if (CUresult result = prepare_kernels(driver, stream->context, nodes)) return result;
  std::vector<Area *> areas = areas_of(nodes);
  if (areas.empty()) return run_graph(driver, stream, exec->ordered);
  // The last launch may have queued its frees behind a host function.
  if (any_backed_now(driver, areas)) drain(stream);
  if (CUresult result = prepare_launch(driver, stream, exec, areas)) return result;
  CUresult result = run_graph(driver, stream, exec->ordered);
  if (result != CUDA_SUCCESS) {
    // Another thread's launch took what was reserved.
    DriverLock lock(driver->mutex);
    release_backed(areas);
  }
  return result;
}

}  // namespace simgpu
