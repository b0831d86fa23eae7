// Graphs: what their nodes allocate is charged when it is taken, at the launch, and until the driver has given it back.
#include "driver/cuda_api.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

class GraphTest : public OneRankTest {
 protected:
  struct Node {
    std::uint64_t node = 0, pointer = 0;
  };

  std::uint64_t make_graph() { return call("cuGraphCreate"); }
  Node add(std::uint64_t graph, std::uint64_t bytes, std::uint64_t after = 0, unsigned device = 0,
           const std::string &symbol = "cuGraphAddMemAllocNode") {
    const Answer answer = program_->ask("call " + symbol + " " + text(graph) + " " + text(after) + " " + text(bytes) +
                                        " " + text(device));
    EXPECT_EQ(answer.result, 0);
    return {answer.number(0), answer.number(1)};
  }
  std::uint64_t add_free(std::uint64_t graph, const Node &node) {
    return call("cuGraphAddMemFreeNode " + text(graph) + " " + text(node.node) + " " + text(node.pointer));
  }
  std::uint64_t instantiate(std::uint64_t graph) { return call("cuGraphInstantiateWithFlags " + text(graph) + " 0"); }
  void launch(std::uint64_t exec) { call("cuGraphLaunch " + text(exec) + " 0"); }
  void trim() {
    call("cuCtxSynchronize");
    call("cuDeviceGraphMemTrim 0");
  }
};

// ---- every way to add, to instantiate, to launch --------------------------------------------------------------------

class EveryAddTest : public GraphTest, public testing::WithParamInterface<const char *> {};

TEST_P(EveryAddTest, TakenAtTheLaunch) {
  const std::uint64_t graph = make_graph();
  const Node node = add(graph, 6 * kMiB, 0, 0, GetParam());
  const std::uint64_t exec = instantiate(graph);
  expect_held(kContext);
  launch(exec);
  expect_held(kContext + 6 * kMiB);
  EXPECT_EQ(charged(0, Kind::data), 6 * kMiB);
  program_->drop("cuMemFree_v2", node.pointer);
  expect_held(kContext + 6 * kMiB);  // kept for the next launch
  launch(exec);
  expect_held(kContext + 6 * kMiB);
  call("cuMemFreeAsync " + text(node.pointer) + " 0");
  trim();
  expect_held(kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, EveryAddTest,
                         testing::Values("cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2"),
                         [](const auto &info) { return std::string(info.param); });

class EveryInstantiationTest : public GraphTest, public testing::WithParamInterface<const char *> {};

TEST_P(EveryInstantiationTest, KnowsWhatALaunchTakes) {
  change_limit(0, kContext + 8 * kMiB);
  const std::uint64_t graph = make_graph();
  const Node node = add(graph, 6 * kMiB);
  const std::uint64_t exec = call(std::string(GetParam()) + " " + text(graph) + " 0");
  const std::uint64_t taken = program_->make("cuMemAlloc_v2", 4 * kMiB);
  EXPECT_EQ(result_of("cuGraphLaunch " + text(exec) + " 0"), kOutOfMemory);
  expect_held(kContext + 4 * kMiB);
  program_->drop("cuMemFree_v2", taken);
  launch(exec);
  expect_held(kContext + 6 * kMiB);
  program_->drop("cuMemFree_v2", node.pointer);
  call("cuGraphExecDestroy " + text(exec));
  call("cuGraphDestroy " + text(graph));
  trim();
  expect_held(kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, EveryInstantiationTest,
                         testing::Values("cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags",
                                         "cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"),
                         [](const auto &info) { return std::string(info.param); });

class EveryLaunchTest : public GraphTest, public testing::WithParamInterface<const char *> {
 protected:
  std::string launch_line(std::uint64_t exec) const { return std::string(GetParam()) + " " + text(exec) + " 0"; }
};

TEST_P(EveryLaunchTest, RefusedAtTheLimit) {
  const std::uint64_t graph = make_graph();
  const Node first = add(graph, 6 * kMiB);
  add_free(graph, add(graph, 3 * kMiB, first.node));  // takes two blocks
  const std::uint64_t exec = instantiate(graph);
  change_limit(0, kContext + 8 * kMiB);
  EXPECT_EQ(result_of(launch_line(exec)), kOutOfMemory);
  expect_held(kContext);
  EXPECT_EQ(program_->complaints(),
            std::vector<std::string>{refusal_line({0, "64MiB", "10MiB", "72MiB", held_by_itself(*program_, "64MiB")})});
  change_limit(0, kContext + 10 * kMiB);
  call(launch_line(exec));
  expect_held(kContext + 10 * kMiB);
  // An upload takes the memory as a launch does, but nobody uses it yet.
  if (std::string(GetParam()).rfind("cuGraphLaunch", 0) == 0) program_->drop("cuMemFree_v2", first.pointer);
  trim();
  expect_held(kContext);
}

TEST_P(EveryLaunchTest, WhatTheDriverRefusesIsGivenBack) {
  const std::uint64_t graph = make_graph();
  add(graph, 6 * kMiB);
  const std::uint64_t exec = instantiate(graph);
  node().set_broken(0, true);
  EXPECT_EQ(result_of(launch_line(exec)), CUDA_ERROR_DEVICE_UNAVAILABLE);
  node().set_broken(0, false);
  expect_held(kContext);
}

TEST_P(EveryLaunchTest, AKilledRanksGraphMemoryGoesToTheNext) {
  change_limit(0, 2 * kContext + 8 * kMiB);
  const auto survivor = start_on(0);
  const std::uint64_t graph = make_graph();
  add(graph, 8 * kMiB);
  call(launch_line(instantiate(graph)));
  EXPECT_EQ(survivor->ask("make cuMemAlloc_v2 2097152").result, kOutOfMemory);
  program_->end(SIGKILL);
  survivor->drop("cuMemFree_v2", survivor->make("cuMemAlloc_v2", kContext + 8 * kMiB));
  EXPECT_EQ(charged(), kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, EveryLaunchTest,
                         testing::Values("cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz"),
                         [](const auto &info) { return std::string(info.param); });

// ---- captured -------------------------------------------------------------------------------------------------------

class CaptureTest : public GraphTest, public testing::WithParamInterface<const char *> {};

TEST_P(CaptureTest, NothingIsChargedBeforeTheLaunch) {
  change_limit(0, kContext + 8 * kMiB);
  const std::string symbol = GetParam();
  const bool per_thread = symbol.find("_ptsz") != std::string::npos;
  constexpr std::uint64_t kPerThread = 2;  // CU_STREAM_PER_THREAD
  const std::uint64_t stream = per_thread ? kPerThread : call("cuStreamCreate 1");
  const std::string named = per_thread ? " 0" : " " + text(stream);
  const std::string pool =
      symbol.find("FromPool") != std::string::npos ? " " + text(call("cuDeviceGetDefaultMemPool 0")) : std::string();
  call("cuStreamBeginCapture_v2 " + text(stream));
  const std::uint64_t first = call(symbol + " " + text(6 * kMiB) + named + pool);
  const std::uint64_t second = call(symbol + " " + text(4 * kMiB) + named + pool);
  expect_held(kContext);
  call(std::string(per_thread ? "cuMemFreeAsync_ptsz " : "cuMemFreeAsync ") + text(second) + named);
  const std::uint64_t graph = call("cuStreamEndCapture " + text(stream));
  const std::uint64_t exec = instantiate(graph);
  expect_held(kContext);
  EXPECT_EQ(result_of("cuGraphLaunch " + text(exec) + " " + text(stream)), kOutOfMemory);
  change_limit(0, kContext + 10 * kMiB);
  call("cuGraphLaunch " + text(exec) + " " + text(stream));
  expect_held(kContext + 10 * kMiB);
  program_->drop("cuMemFree_v2", first);
  trim();
  expect_held(kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, CaptureTest,
                         testing::Values("cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
                                         "cuMemAllocFromPoolAsync_ptsz"),
                         [](const auto &info) { return std::string(info.param); });

// ---- graphs in graphs, updates, several devices ---------------------------------------------------------------------

TEST_F(GraphTest, ChildrenCount) {
  const std::uint64_t inner = make_graph(), middle = make_graph(), outer = make_graph();
  const Node deep = add(inner, 6 * kMiB);
  call("move_child " + text(middle) + " 0 " + text(inner));
  const Node own = add(outer, 4 * kMiB);
  call("move_child " + text(outer) + " " + text(own.node) + " " + text(middle));
  const std::uint64_t exec = instantiate(outer);
  change_limit(0, kContext + 8 * kMiB);
  EXPECT_EQ(result_of("cuGraphLaunch " + text(exec) + " 0"), kOutOfMemory);
  change_limit(0, kContext + 10 * kMiB);
  launch(exec);
  expect_held(kContext + 10 * kMiB);
  program_->drop("cuMemFree_v2", deep.pointer);
  program_->drop("cuMemFree_v2", own.pointer);
  trim();
  expect_held(kContext);
}

TEST_F(GraphTest, EachDeviceIsChargedItsOwn) {
  change_limit(1, 4 * kMiB);
  const std::uint64_t graph = make_graph();
  const Node here = add(graph, 6 * kMiB, 0, 0);
  const Node there = add(graph, 4 * kMiB, here.node, 1);
  const std::uint64_t exec = instantiate(graph);
  launch(exec);
  expect_held(kContext + 6 * kMiB, 0);
  expect_held(4 * kMiB, 1);
  program_->drop("cuMemFree_v2", here.pointer);
  program_->drop("cuMemFree_v2", there.pointer);
  trim();
  call("cuDeviceGraphMemTrim 1");
  expect_held(kContext, 0);
  expect_held(0, 1);
  // Refused on the second, nothing stays charged on the first.
  change_limit(1, 2 * kMiB);
  EXPECT_EQ(result_of("cuGraphLaunch " + text(exec) + " 0"), kOutOfMemory);
  expect_held(kContext, 0);
  expect_held(0, 1);
}

TEST_F(GraphTest, NothingOnADeviceThatIsNotTheJobs) {
  program_.reset();
  std::vector<DeviceSpec> devices = devices_of(HooksTest::node(), 512 * kMiB);
  devices.resize(1);
  TemporaryDirectory directory;
  ASSERT_FALSE(Region::create(directory.path().c_str(), "8", make_spec(devices)));
  Program program(HooksTest::node(), directory.path() + "/8");
  program.must("init");
  program.make("cuCtxCreate_v2", 0);
  const std::uint64_t graph = program.must("call cuGraphCreate");
  program.must("call cuGraphAddMemAllocNode " + text(graph) + " 0 4194304 1");
  const std::uint64_t exec = program.must("call cuGraphInstantiateWithFlags " + text(graph) + " 0");
  EXPECT_EQ(program.ask("call cuGraphLaunch " + text(exec) + " 0").result, kOutOfMemory);
  EXPECT_EQ(HooksTest::node().held(1), 0u);
}

TEST_F(GraphTest, GraphsOfADeviceShareTheirMemory) {
  change_limit(0, kContext + 8 * kMiB);
  const std::uint64_t one = make_graph(), two = make_graph();
  add_free(one, add(one, 8 * kMiB));
  add_free(two, add(two, 6 * kMiB));
  const std::uint64_t first = instantiate(one), second = instantiate(two);
  for (unsigned i = 0; i < 3; ++i) {
    launch(first);
    launch(second);
    expect_held(kContext + 8 * kMiB);
  }
  // And it is given back when somebody else needs it.
  program_->drop("cuMemFree_v2", program_->make("cuMemAlloc_v2", 4 * kMiB));
  expect_held(kContext);
}

class EveryUpdateTest : public GraphTest, public testing::WithParamInterface<const char *> {};

TEST_P(EveryUpdateTest, ChangesNothingThatIsCharged) {
  const std::uint64_t graph = make_graph(), same = make_graph();
  const Node node = add(graph, 4 * kMiB);
  add(same, 8 * kMiB);
  const std::uint64_t exec = instantiate(graph);
  // The driver does not exchange allocations; the next launch is the old one.
  EXPECT_NE(result_of(std::string(GetParam()) + " " + text(exec) + " " + text(same)), 0);
  launch(exec);
  expect_held(kContext + 4 * kMiB);
  program_->drop("cuMemFree_v2", node.pointer);
  trim();

  const std::uint64_t empty = make_graph(), other = make_graph();
  call("cuGraphAddEmptyNode " + text(empty) + " 0");
  call("cuGraphAddEmptyNode " + text(other) + " 0");
  const std::uint64_t nothing = instantiate(empty);
  call(std::string(GetParam()) + " " + text(nothing) + " " + text(other));
  launch(nothing);
  expect_held(kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, EveryUpdateTest, testing::Values("cuGraphExecUpdate", "cuGraphExecUpdate_v2"),
                         [](const auto &info) { return std::string(info.param); });

TEST_F(GraphTest, ClonesOfGraphsThatAllocateAreTheDriversToRefuse) {
  const std::uint64_t graph = make_graph();
  add(graph, 4 * kMiB);
  EXPECT_EQ(result_of("cuGraphClone " + text(graph)), CUDA_ERROR_NOT_SUPPORTED);
  expect_held(kContext);
}

TEST_F(GraphTest, OutlivesItsGraph) {
  const std::uint64_t graph = make_graph();
  const Node node = add(graph, 6 * kMiB);
  const std::uint64_t exec = instantiate(graph);
  launch(exec);
  call("cuGraphExecDestroy " + text(exec));
  call("cuGraphDestroy " + text(graph));
  trim();
  expect_held(kContext + 6 * kMiB);  // nobody freed it
  program_->drop("cuMemFree_v2", node.pointer);
  trim();
  expect_held(kContext);
}

}  // namespace
}  // namespace vgpu::test
