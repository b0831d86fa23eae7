// Graphs: what their nodes allocate is taken at launch, and shared by all graphs of a device.
#include "runtime/graphs.h"
#include "runtime/charge.h"
#include "runtime/pool_memory.h"
#include "sm/metered.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

bool graphs_matter() { return graphs_allocate.load(std::memory_order_relaxed) && mode() == Mode::active; }

template <typename Call>
CUresult instantiate(CUgraphExec *exec, CUgraph graph, Call call) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS && graphs_matter()) graph_instantiated(*exec, graph);
  return result;
}

template <typename Call>
CUresult update(CUgraphExec exec, CUgraph graph, Call call) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS && launches_are_metered()) sm::doubt_cost(exec);
  if (result == CUDA_SUCCESS && graphs_matter()) graph_instantiated(exec, graph);
  return result;
}

// Launches on one device after another: a graph that allocates on several reserves on each.
template <typename Call>
CUresult launch_from(CUdevice ordinal, CUgraphExec exec, Call call) {
  while (ordinal < static_cast<CUdevice>(kMaxDevices) && launch_bytes(exec, ordinal) == 0) ++ordinal;
  if (ordinal == static_cast<CUdevice>(kMaxDevices)) return call();
  Pool *pool = graph_pool(ordinal);
  if (pool == nullptr) return charge(region_device(ordinal), launch_bytes(exec, ordinal));
  PoolCharge reserved(*pool, launch_bytes(exec, ordinal));
  if (!reserved.reserve()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = launch_from(ordinal + 1, exec, call);
  if (result == CUDA_SUCCESS) {
    reserved.settle_whatever_it_took();
    note_pools_may_shrink();
  } else {
    reserved.cancel();
  }
  return result;
}

template <typename Call>
CUresult launch(CUgraphExec exec, Call call) {
  return graphs_matter() ? launch_from(0, exec, call) : call();
}

CUresult admit_node(const CUgraphNodeParams *params) {
  if (params == nullptr || params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return CUDA_SUCCESS;
  if (mode() == Mode::closed) return kNotReady;
  note_graph_allocates();
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  if (mode() == Mode::closed) return kNotReady;
  note_graph_allocates();
  return REAL(cuGraphAddMemAllocNode)(node, graph, dependencies, count, params);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *params) {
  const CUresult refused = admit_node(params);
  return refused != CUDA_SUCCESS ? refused : REAL(cuGraphAddNode)(node, graph, dependencies, count, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params) {
  const CUresult refused = admit_node(params);
  return refused != CUDA_SUCCESS ? refused : REAL(cuGraphAddNode_v2)(node, graph, dependencies, edges, count, params);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size) {
  return instantiate(exec, graph, [&] { return REAL(cuGraphInstantiate)(exec, graph, error_node, log, size); });
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size) {
  return instantiate(exec, graph, [&] { return REAL(cuGraphInstantiate_v2)(exec, graph, error_node, log, size); });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph, [&] { return REAL(cuGraphInstantiateWithFlags)(exec, graph, flags); });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return instantiate(exec, graph, [&] { return REAL(cuGraphInstantiateWithParams)(exec, graph, params); });
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return instantiate(exec, graph, [&] { return REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, params); });
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *status) {
  return update(exec, graph, [&] { return REAL(cuGraphExecUpdate)(exec, graph, error_node, status); });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *status) {
  return update(exec, graph, [&] { return REAL(cuGraphExecUpdate_v2)(exec, graph, status); });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (launches_are_metered()) sm::doubt_cost(exec);
  const CUresult result = REAL(cuGraphExecDestroy)(exec);
  if (result == CUDA_SUCCESS && graphs_matter()) graph_destroyed(exec);
  return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return sm::metered({exec, 1, 0}, stream,
                     [&] { return launch(exec, [&] { return REAL(cuGraphLaunch)(exec, stream); }); });
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return sm::metered({exec, 1, 0}, per_thread(stream),
                     [&] { return launch(exec, [&] { return REAL(cuGraphLaunch_ptsz)(exec, stream); }); });
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return launch(exec, [&] { return REAL(cuGraphUpload)(exec, stream); });
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return launch(exec, [&] { return REAL(cuGraphUpload_ptsz)(exec, stream); });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const CUresult result = REAL(cuDeviceGraphMemTrim)(device);
  note_pools_may_shrink();
  recheck_pools_when_due();
  return result;
}

}  // extern "C"
