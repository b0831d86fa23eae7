// Graphs: nodes that allocate, by every way to add them, and what is done with the graph then.
#include "calls.h"

namespace vgpu::test {

namespace {

CUgraph graph(Arguments &in) { return handle<CUgraph>(in); }
CUgraphExec exec(Arguments &in) { return handle<CUgraphExec>(in); }
CUstream stream(Arguments &in) { return handle<CUstream>(in); }

CUmemPoolProps pool_of(CUdevice on) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = on;
  return properties;
}

CUgraphNodeParams alloc_params(CUdevice on, std::uint64_t bytes) {
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  params.alloc.poolProps = pool_of(on);
  params.alloc.bytesize = bytes;
  return params;
}

// The nodes of a graph are made one after another, each waiting for the last: "GRAPH LAST ...", where 0 is none.
struct After {
  explicit After(Arguments &in) : into(graph(in)), last(handle<CUgraphNode>(in)) {}
  std::size_t count() const { return last != nullptr ? 1 : 0; }

  CUgraph into;
  CUgraphNode last;
};

int answer_node(int result, CUgraphNode node, std::uint64_t pointer, Values &out) {
  out << ' ' << reinterpret_cast<std::uint64_t>(node) << ' ' << pointer;
  return result;
}

template <typename Add>
int add_generic(Arguments &in, Values &out, Add add) {
  const After after(in);
  const auto bytes = number(in);
  auto params = alloc_params(device(in), bytes);
  CUgraphNode node = nullptr;
  const CUresult result = add(after, &node, &params);
  return answer_node(result, node, params.alloc.dptr, out);
}

constexpr Call kCalls[] = {
    CALL(cuGraphCreate, { return answer<CUgraph>(out, [](CUgraph *g) { return DRIVER(cuGraphCreate)(g, 0); }); }),
    CALL(cuGraphDestroy, { return DRIVER(cuGraphDestroy)(graph(in)); }),
    CALL(cuGraphClone,
         {
           const auto original = graph(in);
           return answer<CUgraph>(out, [&](CUgraph *g) { return DRIVER(cuGraphClone)(g, original); });
         }),
    CALL(cuGraphAddMemAllocNode,
         {
           const After after(in);
           CUDA_MEM_ALLOC_NODE_PARAMS params = {};
           params.bytesize = number(in);
           params.poolProps = pool_of(device(in));
           CUgraphNode node = nullptr;
           const CUresult result =
               DRIVER(cuGraphAddMemAllocNode)(&node, after.into, &after.last, after.count(), &params);
           return answer_node(result, node, params.dptr, out);
         }),
    CALL(cuGraphAddNode,
         {
           return add_generic(in, out, [](const After &after, CUgraphNode *node, CUgraphNodeParams *params) {
             return DRIVER(cuGraphAddNode)(node, after.into, &after.last, after.count(), params);
           });
         }),
    CALL(cuGraphAddNode_v2,
         {
           return add_generic(in, out, [](const After &after, CUgraphNode *node, CUgraphNodeParams *params) {
             return DRIVER(cuGraphAddNode_v2)(node, after.into, &after.last, nullptr, after.count(), params);
           });
         }),
    CALL(cuGraphAddMemFreeNode,
         {
           const After after(in);
           const auto pointer = number(in);
           return answer<CUgraphNode>(out, [&](CUgraphNode *node) {
             return DRIVER(cuGraphAddMemFreeNode)(node, after.into, &after.last, after.count(), pointer);
           });
         }),
    CALL(move_child,
         {
           const After after(in);
           CUgraphNodeParams params = {};
           params.type = CU_GRAPH_NODE_TYPE_GRAPH;
           params.graph.graph = graph(in);
           params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
           return answer<CUgraphNode>(out, [&](CUgraphNode *node) {
             return DRIVER(cuGraphAddNode)(node, after.into, &after.last, after.count(), &params);
           });
         }),
    CALL(cuGraphAddEmptyNode,
         {
           const After after(in);
           return answer<CUgraphNode>(out, [&](CUgraphNode *node) {
             return DRIVER(cuGraphAddEmptyNode)(node, after.into, &after.last, after.count());
           });
         }),

    CALL(cuGraphInstantiate,
         {
           const auto of = graph(in);
           return answer<CUgraphExec>(
               out, [&](CUgraphExec *e) { return DRIVER(cuGraphInstantiate)(e, of, nullptr, nullptr, 0); });
         }),
    CALL(cuGraphInstantiate_v2,
         {
           const auto of = graph(in);
           return answer<CUgraphExec>(
               out, [&](CUgraphExec *e) { return DRIVER(cuGraphInstantiate_v2)(e, of, nullptr, nullptr, 0); });
         }),
    CALL(cuGraphInstantiateWithFlags,
         {
           const auto of = graph(in);
           const auto flags = number(in);
           return answer<CUgraphExec>(
               out, [&](CUgraphExec *e) { return DRIVER(cuGraphInstantiateWithFlags)(e, of, flags); });
         }),
    CALL(cuGraphInstantiateWithParams,
         {
           const auto of = graph(in);
           CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
           return answer<CUgraphExec>(
               out, [&](CUgraphExec *e) { return DRIVER(cuGraphInstantiateWithParams)(e, of, &params); });
         }),
    CALL(cuGraphInstantiateWithParams_ptsz,
         {
           const auto of = graph(in);
           CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
           return answer<CUgraphExec>(
               out, [&](CUgraphExec *e) { return DRIVER(cuGraphInstantiateWithParams_ptsz)(e, of, &params); });
         }),
    CALL(cuGraphExecUpdate,
         {
           const auto which = exec(in);
           CUgraphNode node = nullptr;
           CUgraphExecUpdateResult status = CU_GRAPH_EXEC_UPDATE_ERROR;
           return DRIVER(cuGraphExecUpdate)(which, graph(in), &node, &status);
         }),
    CALL(cuGraphExecUpdate_v2,
         {
           const auto which = exec(in);
           CUgraphExecUpdateResultInfo info = {};
           return DRIVER(cuGraphExecUpdate_v2)(which, graph(in), &info);
         }),
    CALL(cuGraphExecDestroy, { return DRIVER(cuGraphExecDestroy)(exec(in)); }),
    CALL(cuGraphLaunch,
         {
           const auto which = exec(in);
           return DRIVER(cuGraphLaunch)(which, stream(in));
         }),
    CALL(cuGraphLaunch_ptsz,
         {
           const auto which = exec(in);
           return DRIVER(cuGraphLaunch_ptsz)(which, stream(in));
         }),
    CALL(cuGraphUpload,
         {
           const auto which = exec(in);
           return DRIVER(cuGraphUpload)(which, stream(in));
         }),
    CALL(cuGraphUpload_ptsz,
         {
           const auto which = exec(in);
           return DRIVER(cuGraphUpload_ptsz)(which, stream(in));
         }),
    CALL(cuDeviceGraphMemTrim, { return DRIVER(cuDeviceGraphMemTrim)(device(in)); }),

    CALL(cuStreamBeginCapture_v2,
         { return DRIVER(cuStreamBeginCapture_v2)(stream(in), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); }),
    CALL(cuStreamEndCapture,
         {
           const auto on = stream(in);
           return answer<CUgraph>(out, [&](CUgraph *g) { return DRIVER(cuStreamEndCapture)(on, g); });
         }),
};

}  // namespace

std::span<const Call> graph_calls() { return kCalls; }

}  // namespace vgpu::test
