// Charged is what the driver takes: whole blocks, and for small pieces the blocks that they share.
#include "cases.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

class BlocksTest : public HooksTest {
 protected:
  static int try_to_make(Program &program, std::uint64_t bytes) {
    return program.ask("make cuMemAlloc_v2 " + text(bytes)).result;
  }
};

TEST_F(BlocksTest, FiveHundredOddBlocks) {
  constexpr std::uint64_t kLimit = 1024 * kMiB;
  limit_to(kLimit);
  const auto program = start_on(kLate);
  sleep_ms(kLateMs + 50);
  program->must("info");
  unsigned granted = 0;
  for (unsigned i = 0; i < 503; ++i) {
    granted += try_to_make(*program, 2 * kMiB + 1) == CUDA_SUCCESS;
    ASSERT_LE(node().held(kLate), kLimit) << "after " << granted;
  }
  EXPECT_EQ(granted, (kLimit - kContext) / (2 * kBlock));
  expect_held(kLimit, kLate);
}

TEST_F(BlocksTest, SmallPiecesShare) {
  limit_to(kContext + kBlock);
  const auto program = start_on(0);
  std::vector<std::uint64_t> pieces;
  for (unsigned i = 0; i < kBlock / 4096; ++i) pieces.push_back(program->make("cuMemAlloc_v2", 4096));
  expect_held(kContext + kBlock);
  EXPECT_EQ(try_to_make(*program, 4096), kOutOfMemory) << "the block is full";
  expect_held(kContext + kBlock);
  for (const std::uint64_t piece : pieces) program->drop("cuMemFree_v2", piece);
  expect_held(kContext);
}

TEST_F(BlocksTest, APieceThatOpensABlockAtTheLimitIsUndone) {
  limit_to(kContext + kBlock);
  const auto program = start_on(0);
  const std::uint64_t first = program->make("cuMemAlloc_v2", 4096);
  const Answer refused = program->ask("make cuMemAlloc_v2 8192");  // of another size: another block
  EXPECT_EQ(refused.result, kOutOfMemory);
  EXPECT_EQ(refused.number(), kUntouched);
  expect_held(kContext + kBlock);
  program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 4096));  // where there is room, there is room
  program->drop("cuMemFree_v2", first);
  const std::uint64_t second = program->make("cuMemAlloc_v2", 8192);
  expect_held(kContext + kBlock);
  program->drop("cuMemFree_v2", second);
  expect_held(kContext);
  EXPECT_EQ(program->complaints().size(), 1u);
}

// As nothing is measured here in between, each must be right by itself.
TEST_F(BlocksTest, EverySizeIsChargedAsTheDriverTakesIt) {
  constexpr std::uint64_t kRow = 4096;  // of what has rows
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const struct {
    const char *make, *drop;
  } kinds[] = {{"cuMemAlloc_v2", "cuMemFree_v2"},
               {"cuMemAlloc", "cuMemFree"},
               {"cuMemAllocPitch_v2", "cuMemFree_v2"},
               {"cuMemAllocManaged", "cuMemFree_v2"},
               {"cuArrayCreate_v2", "cuArrayDestroy"},
               {"cuArray3DCreate_v2", "cuArrayDestroy"},
               {"cuMipmappedArrayCreate", "cuMipmappedArrayDestroy"}};
  for (const auto &[make, drop] : kinds) {
    SCOPED_TRACE(make);
    std::vector<std::uint64_t> made;
    for (const std::uint64_t bytes :
         {kRow, kRow, 8 * kRow, kMiB, kMiB + kRow, 2 * kMiB - kRow, 2 * kMiB, 2 * kMiB + kRow, 3 * kMiB, 5 * kMiB}) {
      made.push_back(program->make(make, bytes));
      if (std::string(make) == "cuMemAllocManaged") program->must("touch " + text(made.back()) + " " + text(bytes));
      EXPECT_EQ(charged(), node().held(0)) << bytes;
    }
    for (const std::uint64_t handle : made) {
      program->drop(drop, handle);
      EXPECT_EQ(charged(), node().held(0));
    }
    expect_held(kContext);
  }
}

TEST_F(BlocksTest, PiecesFreedByStreamAreMeasured) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t first = program->make("cuMemAlloc_v2", 4096), second = program->make("cuMemAlloc_v2", 4096);
  program->must("call cuMemFreeAsync " + text(first) + " 0");
  EXPECT_EQ(charged(), kContext + kBlock);
  program->must("call cuMemFreeAsync " + text(second) + " 0");
  program->must("call cuCtxSynchronize");
  sleep_ms(50);
  for (unsigned i = 0; i < 16; ++i) program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 2 * kMiB));
  expect_held(kContext);
}

// One block is charged ahead. Before a sibling is refused, it goes, whatever its owner is doing.
class SpareTest : public BlocksTest, public testing::WithParamInterface<bool> {};

TEST_P(SpareTest, IsGivenUpForASibling) {
  limit_to(2 * kContext + 3 * kBlock);
  const auto owner = start_on(0), sibling = start_on(0);
  const std::uint64_t piece = owner->make("cuMemAlloc_v2", 4096);
  if (GetParam()) kill(owner->pid(), SIGSTOP);
  const std::uint64_t all = sibling->make("cuMemAlloc_v2", 2 * kBlock);
  EXPECT_EQ(charged(), 2 * kContext + 3 * kBlock);
  EXPECT_EQ(try_to_make(*sibling, 4096), kOutOfMemory);
  if (GetParam()) kill(owner->pid(), SIGCONT);
  // The owner goes on with what it has, and is refused what it has not.
  owner->drop("cuMemFree_v2", owner->make("cuMemAlloc_v2", 4096));
  EXPECT_EQ(try_to_make(*owner, 8192), kOutOfMemory);
  expect_held(2 * kContext + 3 * kBlock);
  sibling->drop("cuMemFree_v2", all);
  owner->drop("cuMemFree_v2", owner->make("cuMemAlloc_v2", 8192));
  owner->drop("cuMemFree_v2", piece);
  expect_held(2 * kContext);
}

INSTANTIATE_TEST_SUITE_P(Owner, SpareTest, testing::Bool(),
                         [](const auto &info) { return info.param ? "IsStopped" : "IsRunning"; });

// What is wrong whatever the limit is, is the driver's to say.
TEST_F(BlocksTest, ArgumentsAreJudgedBeforeTheLimit) {
  limit_to(kContext);
  const auto program = start_on(0);
  const std::string huge = text(std::uint64_t{1} << 40);
  for (const char *symbol : {"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuArrayCreate_v2"}) {
    EXPECT_EQ(program->ask("spoil " + std::string(symbol) + " " + huge).result, CUDA_ERROR_INVALID_VALUE) << symbol;
  }
  EXPECT_EQ(try_to_make(*program, 0), CUDA_ERROR_INVALID_VALUE);
  program->must("current 0");
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 " + huge).result, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{});
  expect_held(kContext);
}

// ---- drivers with other blocks --------------------------------------------------------------------------------------

class BlockSizeTest : public testing::TestWithParam<unsigned> {};

TEST_P(BlockSizeTest, IsAsked) {
  const std::uint64_t block = GetParam() * kMiB, context = 64 * kMiB;
  const std::string description =
      "context=64MiB; module=1MiB; reserved=0; visibility_ms=0; memory=2GiB; device; block=" + text(GetParam()) + "MiB";
  const Node node(description.c_str());
  const TemporaryDirectory directory;
  ASSERT_FALSE(Region::create(directory.path().c_str(), "7", make_spec(devices_of(node, 512 * kMiB))));
  const std::string region = directory.path() + "/7";
  Region books;
  ASSERT_FALSE(Region::attach(region.c_str(), Trust::root_or_self, &books));
  Program program(node, region);
  program.must("init");
  program.make("cuCtxCreate_v2", 0);

  // Small pieces of one size, until they need a second block.
  std::vector<std::uint64_t> made;
  const auto held = [&] { return node.held(0); };
  while (held() < context + 2 * block) made.push_back(program.make("cuMemAlloc_v2", 256 * 1024));
  EXPECT_EQ(made.size(), block / (256 * 1024) + 1);
  for (const std::uint64_t bytes : {kMiB, 3 * kMiB, block - 512, block, block + 1, 3 * block}) {
    made.push_back(program.make("cuMemAlloc_v2", bytes));
    EXPECT_LE(held(), books.memory_used(0)) << bytes;
    EXPECT_LE(books.memory_used(0), held() + 2 * block) << bytes;  // one block ahead; and one that just became empty
  }
  for (const std::uint64_t pointer : made) program.drop("cuMemFree_v2", pointer);
  EXPECT_EQ(held(), context);
  EXPECT_LE(books.memory_used(0), context + 2 * block);

  while (program.ask("make cuMemAlloc_v2 " + text(block + 1)).result == CUDA_SUCCESS) EXPECT_LE(held(), 512 * kMiB);
  EXPECT_GT(held() + 2 * block, 512 * kMiB);
}

INSTANTIATE_TEST_SUITE_P(MiB, BlockSizeTest, testing::Values(2, 4, 16),
                         [](const auto &info) { return std::to_string(info.param); });

}  // namespace
}  // namespace vgpu::test
