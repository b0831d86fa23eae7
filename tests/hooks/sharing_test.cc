// Memory that several processes of a job hold, or that comes from another interface: charged once, where it was made, and
// not lost when its maker goes first.
#include "sharing_ways.h"

namespace vgpu::test {

using namespace region;
namespace {

class SharingTest : public HooksTest {
 protected:
  void SetUp() override {
    limit_to(512 * kMiB);
    maker_ = start_on(0);
    user_ = start_on(0);
  }
  void TearDown() override {
    maker_.reset();
    user_.reset();
    HooksTest::TearDown();
  }

  static std::string word(Program &program, const std::string &line) {
    const Answer answer = program.ask("call " + line);
    EXPECT_EQ(answer.result, 0) << line;
    return answer.values.empty() ? "" : answer.values[0];
  }
  // A descriptor of one process in the other.
  static std::uint64_t send(Program &from, std::uint64_t fd, Program &to) {
    const std::uint64_t taken = to.must("call take " + text(static_cast<std::uint64_t>(from.pid())) + " " + text(fd));
    from.must("call close " + text(fd));
    return taken;
  }
  // What `user_` holds beyond its context, once that has been measured.
  std::uint64_t held_by_user() {
    sleep_ms(25);
    user_->must("info");
    return charged() - kContext;
  }

  // `user_` measures now and then while it asks.
  void measure_until_charged(std::uint64_t bytes) {
    for (int waited = 0; charged() != bytes && waited < 500; ++waited) {
      sleep_ms(10);
      user_->must("info");
    }
    for (unsigned i = 0; i < 8; ++i) user_->must("info");
  }

  std::unique_ptr<Program> maker_, user_;
};

class EverySharingTest : public SharingTest, public testing::WithParamInterface<Way> {};

TEST_P(EverySharingTest, ChargedOnceToItsMaker) {
  const SharedBytes shared = GetParam().share(*maker_, *user_);
  expect_held(2 * kContext + shared.charged);
  EXPECT_EQ(charged(0, Kind::data), shared.charged);
  sleep_ms(1100);  // long enough for every measurement
  user_->must("info");
  maker_->must("info");
  expect_held(2 * kContext + shared.charged);
  user_->must(shared.free_in_user);
  expect_held(2 * kContext + shared.charged);
  maker_->must(shared.free_in_maker);
  maker_->must("call cuCtxSynchronize");
  expect_held(2 * kContext);
}

TEST_P(EverySharingTest, TheUserDies) {
  const SharedBytes shared = GetParam().share(*maker_, *user_);
  user_->end(SIGKILL);
  for (int waited = 0; node().held(0) > kContext + shared.charged && waited < 5000; ++waited) sleep_ms(1);
  sleep_ms(110);
  EXPECT_EQ(maker_->must("info"), 512 * kMiB - kContext - shared.charged);
  expect_held(kContext + shared.charged);
  maker_->must(shared.free_in_maker);
  maker_->must("call cuCtxSynchronize");
  expect_held(kContext);
}

// The driver keeps the memory for who is left, and so does the charge, once it has been measured.
TEST_P(EverySharingTest, TheMakerDies) {
  const SharedBytes shared = GetParam().share(*maker_, *user_);
  maker_->end(SIGKILL);
  for (int waited = 0; node().held(0) > kContext + shared.charged && waited < 5000; ++waited) sleep_ms(1);
  measure_until_charged(kContext + shared.charged);
  expect_held(kContext + shared.charged);
  user_->must(shared.free_in_user);
  measure_until_charged(kContext);
  expect_held(kContext);
}

TEST_P(EverySharingTest, BothDie) {
  GetParam().share(*maker_, *user_);
  maker_->end(SIGKILL);
  user_->end(SIGKILL);
  const auto survivor = start_on(0);
  survivor->drop("cuMemFree_v2", survivor->make("cuMemAlloc_v2", 512 * kMiB - kContext));
  EXPECT_EQ(charged(), kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, EverySharingTest, testing::ValuesIn(kWays),
                         [](const auto &info) { return std::string(info.param.name); });

// What a maker frees is there for as long as somebody has it open, and stays charged.
TEST_F(SharingTest, ALoopOfIpcHandlesStaysUnderTheLimit) {
  constexpr std::uint64_t kEach = 64 * kMiB;
  std::vector<std::uint64_t> opened;
  bool refused = false;
  for (unsigned round = 0; round < 60 && !refused; ++round) {
    const Answer made = maker_->ask("make cuMemAlloc_v2 " + text(kEach));
    refused = made.result == kOutOfMemory;
    if (refused) break;
    const std::string handle = word(*maker_, "cuIpcGetMemHandle " + text(made.number()));
    opened.push_back(user_->must("call cuIpcOpenMemHandle_v2 " + handle));
    maker_->drop("cuMemFree_v2", made.number());
    EXPECT_LE(node().held(0), 512 * kMiB) << "round " << round;
    EXPECT_GE(charged(), node().held(0)) << "round " << round;
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(opened.size(), (512 * kMiB - 2 * kContext) / kEach);
  // When it is closed there, it is gone, and there is room again.
  for (const std::uint64_t pointer : opened) user_->must("call cuIpcCloseMemHandle " + text(pointer));
  maker_->drop("cuMemFree_v2", maker_->make("cuMemAlloc_v2", kEach));
  for (int waited = 0; charged() != node().held(0) && waited < 100; ++waited) {
    sleep_ms(20);
    maker_->must("info");
  }
  expect_held(2 * kContext);
}

// The same by handles of physical memory.
TEST_F(SharingTest, ALoopOfShareableHandlesStaysUnderTheLimit) {
  constexpr std::uint64_t kEach = 64 * kMiB;
  std::vector<std::uint64_t> imported;
  bool refused = false;
  for (unsigned round = 0; round < 60 && !refused; ++round) {
    const Answer made = maker_->ask("call cuMemCreate " + text(kEach) + " 0");
    refused = made.result == kOutOfMemory;
    if (refused) break;
    const std::string handle = text(made.number());
    const std::uint64_t fd = descriptor_for(*maker_, "call cuMemExportToShareableHandle " + handle, *user_);
    imported.push_back(user_->must("call cuMemImportFromShareableHandle " + text(fd)));
    user_->must("call close " + text(fd));
    maker_->must("call cuMemRelease " + handle);
    EXPECT_LE(node().held(0), 512 * kMiB) << "round " << round;
    EXPECT_GE(charged(), node().held(0)) << "round " << round;
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(imported.size(), (512 * kMiB - 2 * kContext) / kEach);
  for (const std::uint64_t handle : imported) user_->must("call cuMemRelease " + text(handle));
  maker_->drop("cuMemFree_v2", maker_->make("cuMemAlloc_v2", kEach));
  for (int waited = 0; charged() != node().held(0) && waited < 100; ++waited) {
    sleep_ms(20);
    maker_->must("info");
  }
  expect_held(2 * kContext);
}

// ---- in one process -------------------------------------------------------------------------------------------------

TEST_F(SharingTest, ImportedWhereItWasMade) {
  const std::uint64_t handle = maker_->must("call cuMemCreate " + text(kBytes) + " 0");
  const std::uint64_t fd = maker_->must("call cuMemExportToShareableHandle " + text(handle));
  const std::uint64_t imported = maker_->must("call cuMemImportFromShareableHandle " + text(fd));
  maker_->must("call close " + text(fd));
  expect_held(2 * kContext + kBytes);
  maker_->must("call cuMemRelease " + text(handle));
  expect_held(2 * kContext + kBytes);  // still there
  maker_->must("call cuMemRelease " + text(imported));
  EXPECT_EQ(node().held(0), 2 * kContext);
  change_limit(0, 2 * kContext + kBytes);
  maker_->drop("cuMemFree_v2", maker_->make("cuMemAlloc_v2", kBytes));
  expect_held(2 * kContext);
}

TEST_F(SharingTest, ADescriptorInFlightKeepsIt) {
  const std::uint64_t handle = maker_->must("call cuMemCreate " + text(kBytes) + " 0");
  const std::uint64_t fd = maker_->must("call cuMemExportToShareableHandle " + text(handle));
  maker_->must("call cuMemRelease " + text(handle));
  // The simulated driver counts what only a descriptor holds to nobody, and so does NVML.
  EXPECT_EQ(charged(), 2 * kContext);
  const std::uint64_t taken = send(*maker_, fd, *user_);
  const std::uint64_t imported = user_->must("call cuMemImportFromShareableHandle " + text(taken));
  user_->must("call close " + text(taken));
  sleep_ms(1100);
  for (unsigned i = 0; i < 8; ++i) user_->must("info");
  expect_held(2 * kContext + kBytes);
  user_->must("call cuMemRelease " + text(imported));
}

// ---- another interface ----------------------------------------------------------------------------------------------

TEST_F(SharingTest, MemoryOfAnotherInterfaceCountsWithinASecond) {
  const std::uint64_t fd = user_->must("call memfd " + text(kBytes));
  const std::uint64_t memory = user_->must("call cuImportExternalMemory " + text(fd) + " " + text(kBytes));
  const std::uint64_t buffer = user_->must("call cuExternalMemoryGetMappedBuffer " + text(memory) + " " + text(kBytes));
  user_->drop("cuMemFree_v2", user_->make("cuMemAlloc_v2", 2 * kMiB));
  sleep_ms(25);
  user_->drop("cuMemFree_v2", user_->make("cuMemAlloc_v2", 2 * kMiB));
  expect_held(2 * kContext + kBytes);
  EXPECT_EQ(charged(0, Kind::data), 0u) << "it is not what calls allocated";
  EXPECT_EQ(charged(0, Kind::other), kBytes);
  user_->drop("cuMemFree_v2", buffer);
  user_->must("call cuDestroyExternalMemory " + text(memory));
  sleep_ms(25);
  user_->drop("cuMemFree_v2", user_->make("cuMemAlloc_v2", 2 * kMiB));
  expect_held(2 * kContext);
  EXPECT_EQ(user_->ask("call cuImportExternalMemory 99 4096").result, CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace vgpu::test
