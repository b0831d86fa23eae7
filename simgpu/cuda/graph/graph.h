// Graphs: nodes with their parameters and edges, instantiated into an ordered list that a launch runs from first to last.
#pragma once

#include <memory>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/memory/transfer.h"

namespace simgpu {

constexpr uint32_t kNodeMagic = 0x4e4f4431;
constexpr uint32_t kGraphMagic = 0x47524631;
constexpr uint32_t kExecMagic = 0x45584531;

struct Graph;
struct Function;
struct EventState;
struct UserObject;

// The arguments of a kernel node. A driver copies them when they are given: the caller's are his again.
struct KernelArguments {
  std::string bytes;
  std::vector<void *> pointers;  // into `bytes`, one for each parameter
  size_t length = 0;
  void *extra[5] = {};  // the same as a buffer, when they were given as one
};

struct GraphNode {
  uint32_t magic = kNodeMagic;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Graph *graph = nullptr;
  std::vector<GraphNode *> needs;  // nodes that must have run
  bool enabled = true;
  uint64_t order = 0;  // when it was added; also names the node in clones and instances

  CUDA_KERNEL_NODE_PARAMS kernel{};  // see set_kernel()
  std::shared_ptr<const KernelArguments> arguments;
  Context *context = nullptr;
  CopyJob copy;
  CUDA_MEMCPY3D copy_parameters{};  // as given, for those who ask
  FillJob fill;
  CUDA_MEMSET_NODE_PARAMS fill_parameters{};
  CUDA_HOST_NODE_PARAMS host{};
  std::unique_ptr<Graph> child;
  std::shared_ptr<EventState> event;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
  Area *area = nullptr;  // alloc: the address that is this node's for good
  CUdeviceptr free_address = 0;
};

struct Graph {
  uint32_t magic = kGraphMagic;
  unsigned flags = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes;
  uint64_t next_order = 1;
  int instances = 0;  // an instance of a graph with allocations keeps their addresses alive
  bool destroyed = false;
  bool owns_areas = true;  // clones refer to the original's addresses
  std::map<UserObject *, uint64_t> objects;

  Graph() = default;
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;
  ~Graph();
};

struct GraphExec {
  uint32_t magic = kExecMagic;
  unsigned long long flags = 0;
  Graph *source = nullptr;
  std::unique_ptr<Graph> copy;
  std::vector<GraphNode *> ordered;
};

Graph *valid_graph(CUgraph handle);
GraphNode *valid_node(CUgraphNode handle);
GraphExec *valid_exec(CUgraphExec handle);

// All expect the driver's lock.
GraphNode *add_node(Graph *graph, std::unique_ptr<GraphNode> node, const std::vector<GraphNode *> &needs);
std::unique_ptr<Graph> clone_graph(const Graph &graph);
bool order_nodes(const Graph &graph, std::vector<GraphNode *> *ordered);  // false: the edges form a circle
bool holds_allocations(const Graph &graph);
bool same_shape(const Graph &a, const Graph &b);
// Nodes of an instance are found by the order number they have in common with the graph they came from.
GraphNode *instance_node(GraphExec *exec, CUgraphNode handle);
// Keeps a kernel node's parameters, with arguments of the node's own.
void set_kernel(GraphNode *node, const CUDA_KERNEL_NODE_PARAMS &params);
FillJob fill_of(const CUDA_MEMSET_NODE_PARAMS &p);
// Gives a fresh allocation node its address and fills in alloc.dptr.
CUresult prepare_alloc_node(Driver *driver, GraphNode *node);
void release_graph(Driver *driver, Graph *graph);

// Makes sure that a launch finds the memory it needs.
CUresult upload_graph(Driver *driver, GraphExec *exec);
CUresult launch_graph(Driver *driver, Stream *stream, GraphExec *exec);

}  // namespace simgpu
