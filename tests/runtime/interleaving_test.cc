// Two threads in the driver at once, at the moments that matter, by a driver that lets the other one in.
//
// A driver may give a freed address or handle to another thread before the call that freed it has returned. The
// simulated one never does so with contexts, so this one does.
#include <functional>

#include "fake_driver.h"

namespace vgpu::test {
namespace {

constexpr CUdeviceptr kPointer = 0x7f0000000000;
constexpr std::uint64_t kBlock = 2 * kMiB;  // as this driver does not say what it takes memory in
const auto kContext = reinterpret_cast<CUcontext>(0x1000);
const auto kOther = reinterpret_cast<CUcontext>(0x2000);

CUcontext current;
CUdeviceptr next_pointer;
CUresult answer;
std::function<void()> meanwhile;  // what the other thread does when the driver has freed and not yet returned

CUresult let_the_other_in() {
  if (answer == CUDA_SUCCESS && meanwhile) std::exchange(meanwhile, nullptr)();
  return answer;
}

class InterleavingTest : public AttachedTest {
 protected:
  void SetUp() override {
    attach_to_the_only_device(64 * kMiB);
    answer = CUDA_SUCCESS;
    meanwhile = nullptr;
    next_pointer = kPointer;
    FAKE(
        cuDeviceGetUuid, (CUuuid * uuid, CUdevice)->CUresult {
          *uuid = {};
          return CUDA_SUCCESS;
        });
    FAKE(
        cuCtxGetCurrent, (CUcontext * context)->CUresult {
          *context = current;
          return CUDA_SUCCESS;
        });
    FAKE(
        cuCtxCreate_v2, (CUcontext * context, unsigned, CUdevice)->CUresult {
          *context = current = kContext;
          return CUDA_SUCCESS;
        });
    FAKE(
        cuCtxDestroy_v2, (CUcontext)->CUresult { return let_the_other_in(); });
    FAKE(
        cuCtxDetach, (CUcontext)->CUresult { return let_the_other_in(); });
    FAKE(
        cuMemAlloc_v2, (CUdeviceptr * pointer, std::size_t)->CUresult {
          *pointer = next_pointer;
          return let_the_other_in();
        });
    FAKE(
        cuMemFree_v2, (CUdeviceptr)->CUresult { return let_the_other_in(); });
  }
  // Whatever a test leaves: contexts and pointers have the same names in the next.
  void TearDown() override {
    answer = CUDA_SUCCESS;
    meanwhile = nullptr;
    for (const CUcontext context : {kContext, kOther}) cuCtxDestroy_v2(context);
    EXPECT_EQ(used(), 0u);
  }

  static void make_context() {
    CUcontext context = nullptr;
    ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(context, kContext);
  }
  static void allocate(CUdeviceptr pointer, std::uint64_t bytes) {
    next_pointer = pointer;
    CUdeviceptr made = 0;
    ASSERT_EQ(cuMemAlloc_v2(&made, bytes), CUDA_SUCCESS);
  }
};

TEST_F(InterleavingTest, ChargedForAsLongAsTheDriverHasIt) {
  make_context();
  std::uint64_t seen = 0;
  meanwhile = [&] { seen = used(); };
  allocate(kPointer, kBlock);
  EXPECT_EQ(seen, kBlock) << "the driver was called before it was charged";
  meanwhile = [&] { seen = used(); };
  ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_SUCCESS);
  EXPECT_EQ(seen, kBlock) << "given back before the driver had freed it";
  EXPECT_EQ(used(), 0u);
}

TEST_F(InterleavingTest, ABlockIsChargedUntilItsLastPieceIsFreed) {
  make_context();
  allocate(kPointer, 4096);
  allocate(kPointer + 4096, 4096);
  EXPECT_EQ(used(), kBlock);
  ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_SUCCESS);
  EXPECT_EQ(used(), kBlock);
  std::uint64_t seen = 0;
  meanwhile = [&] { seen = used(); };
  ASSERT_EQ(cuMemFree_v2(kPointer + 4096), CUDA_SUCCESS);
  EXPECT_EQ(seen, kBlock) << "given back before the driver had freed it";
  EXPECT_EQ(used(), 0u);
}

TEST_F(InterleavingTest, AFreedAddressIsAnothersBeforeTheFreeReturns) {
  make_context();
  allocate(kPointer, kMiB);
  meanwhile = [] { allocate(kPointer, 2 * kMiB); };
  ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_SUCCESS);
  EXPECT_EQ(used(), 2 * kMiB);
  ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_F(InterleavingTest, AFreedPieceIsAnothersBeforeTheFreeReturns) {
  make_context();
  allocate(kPointer, 4096);
  meanwhile = [] { allocate(kPointer, 4096); };
  ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_SUCCESS);
  EXPECT_EQ(used(), kBlock);
  ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_F(InterleavingTest, AFreeThatFailsLeavesItCharged) {
  make_context();
  for (const std::uint64_t bytes : {std::uint64_t{4096}, 3 * kMiB}) {
    allocate(kPointer, bytes);
    const std::uint64_t charged = used();
    answer = CUDA_ERROR_INVALID_VALUE;
    ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(used(), charged);
    answer = CUDA_SUCCESS;
    ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0u);
  }
}

// The driver freed it in a way that we did not see.
TEST_F(InterleavingTest, AnAddressThatComesASecondTimeReplacesTheFirst) {
  make_context();
  allocate(kPointer, 4 * kMiB);
  allocate(kPointer, kMiB);
  EXPECT_EQ(used(), kBlock);
  allocate(kPointer, 6 * kMiB);
  EXPECT_EQ(used(), 6 * kMiB);
}

// A driver that puts things where no other does: never charged for less than it can have taken.
TEST_F(InterleavingTest, PiecesAcrossBlocks) {
  make_context();
  const CUdeviceptr across = kPointer + kBlock - 4096;
  allocate(kPointer, 4096);
  allocate(across, 8192);
  EXPECT_GE(used(), 2 * kBlock);
  allocate(kPointer + kBlock + 64 * 1024, 3 * kMiB);  // begins in the middle of a block
  ASSERT_EQ(cuMemFree_v2(across), CUDA_SUCCESS);
  EXPECT_EQ(used(), kBlock + 4 * kMiB);
  ASSERT_EQ(cuMemFree_v2(kPointer), CUDA_SUCCESS);
  EXPECT_EQ(used(), 4 * kMiB);
  ASSERT_EQ(cuMemFree_v2(kPointer + kBlock + 64 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

class DestroyTest : public InterleavingTest, public testing::WithParamInterface<CUresult (*)(CUcontext)> {};

TEST_P(DestroyTest, ChargedForAsLongAsTheDriverHasIt) {
  make_context();
  allocate(kPointer, kMiB);
  allocate(kPointer + kBlock, 3 * kMiB);
  std::uint64_t seen = 0;
  meanwhile = [&] { seen = used(); };
  ASSERT_EQ(GetParam()(kContext), CUDA_SUCCESS);
  EXPECT_EQ(seen, kBlock + 4 * kMiB);
  EXPECT_EQ(used(), 0u);
}

TEST_P(DestroyTest, ADestroyedContextsHandleIsAnothersBeforeTheCallReturns) {
  make_context();
  allocate(kPointer, kMiB);
  meanwhile = [] {
    make_context();
    allocate(kPointer + kBlock, 2 * kMiB);
  };
  ASSERT_EQ(GetParam()(kContext), CUDA_SUCCESS);
  EXPECT_EQ(used(), 2 * kMiB) << "what is in the new context is its own";
  allocate(kPointer + 4 * kMiB, 4 * kMiB);
  EXPECT_EQ(used(), 6 * kMiB);
  ASSERT_EQ(GetParam()(kContext), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_P(DestroyTest, ItsAddressesAreAnothersBeforeTheCallReturns) {
  make_context();
  allocate(kPointer, kMiB);
  allocate(kPointer + kBlock, 2 * kMiB);
  meanwhile = [] {
    current = kOther;
    allocate(kPointer, 4096);
    allocate(kPointer + kBlock, 2 * kMiB);
  };
  ASSERT_EQ(GetParam()(kContext), CUDA_SUCCESS);
  EXPECT_EQ(used(), kBlock + 2 * kMiB);
}

TEST_P(DestroyTest, AContextThatIsNotDestroyedKeepsWhatItHas) {
  make_context();
  allocate(kPointer, kMiB);
  answer = CUDA_ERROR_INVALID_CONTEXT;
  ASSERT_EQ(GetParam()(kContext), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(used(), kBlock);
  answer = CUDA_SUCCESS;
  allocate(kPointer + kBlock, kMiB);
  EXPECT_EQ(used(), 2 * kBlock);
  ASSERT_EQ(GetParam()(kContext), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Every, DestroyTest, testing::Values(&cuCtxDestroy_v2, &cuCtxDetach));

}  // namespace
}  // namespace vgpu::test
