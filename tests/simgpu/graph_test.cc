// Nodes of graphs after they were added: what is asked of them, and what can still be changed.
#include <cstring>

#include "support.h"

namespace {

const char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry first(\n  .param .u64 first_param_0,\n  .param .u32 first_param_1\n)\n{\n  ret;\n}\n"
    ".visible .entry second()\n{\n  ret;\n}\n";

class GraphNodes : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    OK(cuModuleLoadData(&module_, kPtx));
    OK(cuModuleGetFunction(&first_, module_, "first"));
    OK(cuModuleGetFunction(&second_, module_, "second"));
    OK(cuGraphCreate(&graph_, 0));
  }
  void TearDown() override {
    if (exec_ != nullptr) {
      OK(cuGraphExecDestroy(exec_));
    }
    OK(cuGraphDestroy(graph_));
    ContextTest::TearDown();
  }
  CUDA_KERNEL_NODE_PARAMS_v1 shape(CUfunction function, unsigned blocks) {
    CUDA_KERNEL_NODE_PARAMS_v1 params{};
    params.func = function;
    params.gridDimX = blocks;
    params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    return params;
  }
  CUDA_MEMCPY3D copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    CUDA_MEMCPY3D params{};
    params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    params.srcDevice = from;
    params.dstDevice = to;
    params.WidthInBytes = bytes;
    params.Height = params.Depth = 1;
    return params;
  }
  unsigned word(CUdeviceptr address) {
    unsigned value = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, address, sizeof value));
    return value;
  }
  CUmodule module_ = nullptr;
  CUfunction first_ = nullptr, second_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

TEST_F(GraphNodes, AKernelsArgumentsAreTheNodes) {
  CUgraphNode node;
  uint64_t address = 0x1234;
  uint32_t count = 7;
  void *arguments[] = {&address, &count};
  auto params = shape(first_, 3);
  params.kernelParams = arguments;
  OK(cuGraphAddKernelNode(&node, graph_, nullptr, 0, &params));
  address = 0;
  count = 0;
  CUDA_KERNEL_NODE_PARAMS_v1 seen{};
  OK(cuGraphKernelNodeGetParams(node, &seen));
  EXPECT_EQ(first_, seen.func);
  EXPECT_EQ(3u, seen.gridDimX);
  ASSERT_NE(nullptr, seen.kernelParams);
  EXPECT_NE(arguments, seen.kernelParams);
  EXPECT_EQ(0x1234u, *static_cast<uint64_t *>(seen.kernelParams[0]));
  EXPECT_EQ(7u, *static_cast<uint32_t *>(seen.kernelParams[1]));
}

TEST_F(GraphNodes, ArgumentsInABufferAreTheNodesToo) {
  CUgraphNode node;
  char buffer[12] = "arguments!!";
  size_t length = sizeof buffer;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &length, CU_LAUNCH_PARAM_END};
  auto params = shape(first_, 1);
  params.extra = extra;
  OK(cuGraphAddKernelNode(&node, graph_, nullptr, 0, &params));
  memset(buffer, 0, sizeof buffer);
  CUDA_KERNEL_NODE_PARAMS seen{};
  OK(cuGraphKernelNodeGetParams_v2(node, &seen));
  EXPECT_EQ(nullptr, seen.kernelParams);
  ASSERT_NE(nullptr, seen.extra);
  EXPECT_EQ(CU_LAUNCH_PARAM_BUFFER_POINTER, seen.extra[0]);
  EXPECT_STREQ("arguments!!", static_cast<char *>(seen.extra[1]));
  EXPECT_EQ(12u, *static_cast<size_t *>(seen.extra[3]));
}

TEST_F(GraphNodes, KernelsGetNewParameters) {
  CUgraphNode node, empty;
  auto params = shape(first_, 1);
  OK(cuGraphAddKernelNode(&node, graph_, nullptr, 0, &params));
  OK(cuGraphAddEmptyNode(&empty, graph_, nullptr, 0));
  OK(cuGraphInstantiateWithFlags(&exec_, graph_, 0));
  params = shape(second_, 5);
  OK(cuGraphKernelNodeSetParams(node, &params));
  CUDA_KERNEL_NODE_PARAMS_v1 seen{};
  OK(cuGraphKernelNodeGetParams(node, &seen));
  EXPECT_EQ(second_, seen.func);
  EXPECT_EQ(5u, seen.gridDimX);
  OK(cuGraphExecKernelNodeSetParams(exec_, node, &params));
  OK(cuGraphLaunch(exec_, nullptr));
  FAILS(INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec_, empty, &params));
  FAILS(INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec_, node, nullptr));
  FAILS(INVALID_VALUE, cuGraphKernelNodeSetParams(empty, &params));
  FAILS(INVALID_VALUE, cuGraphKernelNodeGetParams(empty, &seen));
  FAILS(INVALID_VALUE, cuGraphKernelNodeGetParams(node, nullptr));
  params.func = nullptr;
  FAILS(INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec_, node, &params));
}

TEST_F(GraphNodes, AnInstancesCopiesAndFillsGetNewParameters) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, 16));
  for (unsigned i = 0; i < 4; i++) OK(cuMemsetD32_v2(p + 4 * i, i, 1));
  CUgraphNode copied, filled;
  CUDA_MEMCPY3D params = copy(p, p + 4, 4);
  CUDA_MEMSET_NODE_PARAMS fill{p + 8, 0, 20, 4, 1, 1};
  OK(cuGraphAddMemcpyNode(&copied, graph_, nullptr, 0, &params, context_));
  OK(cuGraphAddMemsetNode(&filled, graph_, nullptr, 0, &fill, context_));
  OK(cuGraphInstantiateWithFlags(&exec_, graph_, 0));
  params = copy(p, p + 12, 4);
  OK(cuGraphExecMemcpyNodeSetParams(exec_, copied, &params, context_));
  fill.value = 30;
  OK(cuGraphExecMemsetNodeSetParams(exec_, filled, &fill, context_));
  OK(cuGraphLaunch(exec_, nullptr));
  EXPECT_EQ(3u, word(p));
  EXPECT_EQ(30u, word(p + 8));
  params.Height = 2;
  FAILS(INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec_, copied, &params, context_)) << "more than one row";
  params.Height = 1;
  FAILS(INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec_, filled, &params, context_));
  fill.elementSize = 3;
  FAILS(INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec_, filled, &fill, context_));
  OK(cuMemFree_v2(p));
}

void add_one(void *count) { ++*static_cast<int *>(count); }

TEST_F(GraphNodes, AnInstancesHostFunctionIsExchanged) {
  int before = 0, after = 0;
  CUgraphNode node;
  CUDA_HOST_NODE_PARAMS params{add_one, &before};
  OK(cuGraphAddHostNode(&node, graph_, nullptr, 0, &params));
  OK(cuGraphInstantiateWithFlags(&exec_, graph_, 0));
  params.userData = &after;
  OK(cuGraphExecHostNodeSetParams(exec_, node, &params));
  OK(cuGraphLaunch(exec_, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(0, before);
  EXPECT_EQ(1, after);
}

TEST_F(GraphNodes, NodesAreSwitchedOffAndOn) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, 4));
  OK(cuMemsetD32_v2(p, 1, 1));
  CUgraphNode node;
  CUDA_MEMSET_NODE_PARAMS fill{p, 0, 2, 4, 1, 1};
  OK(cuGraphAddMemsetNode(&node, graph_, nullptr, 0, &fill, context_));
  OK(cuGraphInstantiateWithFlags(&exec_, graph_, 0));
  unsigned enabled = 0;
  OK(cuGraphNodeGetEnabled(exec_, node, &enabled));
  EXPECT_EQ(1u, enabled);
  OK(cuGraphNodeSetEnabled(exec_, node, 0));
  OK(cuGraphNodeGetEnabled(exec_, node, &enabled));
  EXPECT_EQ(0u, enabled);
  OK(cuGraphLaunch(exec_, nullptr));
  EXPECT_EQ(1u, word(p));
  OK(cuGraphNodeSetEnabled(exec_, node, 1));
  OK(cuGraphLaunch(exec_, nullptr));
  EXPECT_EQ(2u, word(p));
  FAILS(INVALID_VALUE, cuGraphNodeGetEnabled(exec_, node, nullptr));
  OK(cuMemFree_v2(p));
}

TEST_F(GraphNodes, EdgesAreListed) {
  CUgraphNode a, b, c, from[4], to[4];
  OK(cuGraphAddEmptyNode(&a, graph_, nullptr, 0));
  OK(cuGraphAddEmptyNode(&b, graph_, &a, 1));
  const CUgraphNode both[] = {a, b};
  OK(cuGraphAddEmptyNode(&c, graph_, both, 2));
  size_t count = 99;
  OK(cuGraphGetEdges(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(3u, count);
  count = 4;
  OK(cuGraphGetEdges(graph_, from, to, &count));
  EXPECT_EQ(3u, count);
  EXPECT_EQ(a, from[0]);
  EXPECT_EQ(b, to[0]);
  EXPECT_EQ(b, from[2]);
  EXPECT_EQ(c, to[2]);
  EXPECT_EQ(nullptr, from[3]);
  EXPECT_EQ(nullptr, to[3]);
  count = 1;
  CUgraphEdgeData data;
  memset(&data, 0xff, sizeof data);
  OK(cuGraphGetEdges_v2(graph_, from, to, &data, &count));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(0, data.type);
  FAILS(INVALID_VALUE, cuGraphGetEdges(graph_, from, nullptr, &count));
  FAILS(INVALID_VALUE, cuGraphGetEdges(graph_, nullptr, nullptr, nullptr));
}

}  // namespace
