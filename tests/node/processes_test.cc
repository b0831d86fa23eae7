// What vgpu-probe says of processes, read back with suspicion.
#include "node/processes.h"

#include <gtest/gtest.h>

namespace vgpu::node {
namespace {

TEST(Processes, ReadBackAsWritten) {
  const std::vector<GpuProcess> processes = {
      {"GPU-a", 1, 0}, {"MIG-b", 4711, ~std::uint64_t{0}, 0}, {"MIG-b", 4712, 5, 100}};
  std::vector<GpuProcess> again;
  const Error error = parse_processes("here", format_processes(processes), &again);
  ASSERT_FALSE(error) << error.text;
  EXPECT_EQ(again, processes);
  ASSERT_FALSE(parse_processes("here", format_processes({}), &again));
  EXPECT_TRUE(again.empty());
}

TEST(Processes, SoIsTheMemoryInUse) {
  const MemoryInUse memory = {{"GPU-a", 5}, {"MIG-b", 0}};
  std::vector<GpuProcess> processes;
  MemoryInUse again;
  ASSERT_FALSE(parse_processes("here", format_processes({{"GPU-a", 1, 5}}, memory), &processes, &again));
  EXPECT_EQ(processes.size(), 1u);
  EXPECT_EQ(again, memory);
}

TEST(Processes, AnythingElseIsRefusedAndChangesNothing) {
  for (const char *bad : {"",
                          "\n",
                          "vgpu-processes 2\nend 0\n",
                          "vgpu-processes 3\n",
                          "vgpu-processes 3\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a 1 2 -\n",
                          "vgpu-processes 3\nprocess GPU-a 1 2 -\nend 2\n",
                          "vgpu-processes 3\nprocess GPU-a 0 2 -\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a -5 2 -\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a 1\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a 1 2\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a 1 2 3 4\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a 1 2 101\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a 1 2 -1\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a 1 2 5x\nend 1\n",
                          "vgpu-processes 3\nprocess GPU-a 99999999999 2 -\nend 1\n",
                          "vgpu-processes 3\nrank GPU-a 1 2 -\nend 1\n",
                          "vgpu-processes 3\ndevice GPU-a\nend 0\n",
                          "vgpu-processes 3\ndevice GPU-a 1 2\nend 0\n",
                          "vgpu-processes 3\ndevice GPU-a 1\ndevice GPU-a 1\nend 0\n"}) {
    std::vector<GpuProcess> processes = {{"GPU-before", 7, 7}};
    EXPECT_TRUE(parse_processes("here", bad, &processes)) << bad;
    EXPECT_EQ(processes.size(), 1u) << bad;
  }
}

}  // namespace
}  // namespace vgpu::node
