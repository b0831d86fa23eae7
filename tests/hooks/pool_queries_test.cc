// Pools that only cuMemGetDefaultMemPool and cuMemGetMemPool hand out are charged like the others.
#include "pool_support.h"

namespace vgpu::test {

using namespace region;
namespace {

class ManagedPoolTest : public PoolTest, public testing::WithParamInterface<const char *> {
 protected:
  static std::string query(unsigned device) { return std::string(GetParam()) + " " + text(device); }
};

TEST_P(ManagedPoolTest, IsChargedAndGivesBack) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = call(*program, query(0));
  EXPECT_EQ(call(*program, query(0)), pool);
  const std::uint64_t pointer = allocate_from(*program, pool, 48 * kMiB);
  expect_held(kContext + 48 * kMiB);
  release(*program, pointer);
  synchronize(*program);
  expect_held(kContext);
}

TEST_P(ManagedPoolTest, IsRefusedAtTheLimit) {
  limit_to(kContext + 40 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t pool = call(*program, query(0));
  EXPECT_EQ(result_of(*program, "cuMemAllocFromPoolAsync " + text(48 * kMiB) + " 0 " + text(pool)), kOutOfMemory);
  expect_held(kContext);
}

TEST_P(ManagedPoolTest, OfADeviceThatIsNotTheJobsIsRefused) {
  std::vector<DeviceSpec> devices = devices_of(node(), kNoLimit);
  devices.resize(1);
  make_region(devices);
  const auto program = start({"CUDA_DEVICE_ORDER=PCI_BUS_ID"});
  const Answer answer = program->ask("call " + query(1));
  EXPECT_EQ(answer.result, kOutOfMemory);
  EXPECT_EQ(answer.number(), 0x5a5a5a5au) << "the output was touched";
  EXPECT_EQ(program->ask("call " + query(7)).result, CUDA_ERROR_INVALID_DEVICE);
}

INSTANTIATE_TEST_SUITE_P(Every, ManagedPoolTest, testing::Values("managed_pool", "current_managed_pool"),
                         [](const auto &info) { return std::string(info.param); });

}  // namespace
}  // namespace vgpu::test
