// Contexts that no call of ours made.
#include "runtime/contexts.h"
#include "fake_driver.h"

namespace vgpu::test {
namespace {

const auto kUnseen = reinterpret_cast<CUcontext>(0x5ee1);

class UnseenContextTest : public AttachedTest {
 protected:
  static std::uint64_t charged() { return rank().memory_held(0, Kind::context); }
};

TEST_F(UnseenContextTest, IsChargedOnceWhenItIsFirstSeenAndGivenBackWithItsEnd) {
  attach_to_the_only_device(64 * kMiB);
  FAKE(
      cuCtxGetCurrent, (CUcontext * context)->CUresult {
        *context = kUnseen;
        return CUDA_SUCCESS;
      });
  FAKE(
      cuCtxDestroy_v2, (CUcontext)->CUresult { return CUDA_SUCCESS; });
  const std::uint64_t figure = rank().context_figure(0).bytes;
  ASSERT_NE(figure, 0u);
  EXPECT_EQ(charged(), 0u);
  Place place;
  for (unsigned times = 0; times < 3; ++times) {
    ASSERT_TRUE(current_place(&place));
    EXPECT_EQ(charged(), figure);
  }
  EXPECT_EQ(cuCtxDestroy_v2(kUnseen), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 0u);
}

TEST_F(UnseenContextTest, APrimaryOneThatIsActiveAlreadyIsNotMadeAgain) {
  attach_to_the_only_device(64 * kMiB);
  static int active = 1;
  active = 1;
  FAKE(
      cuDevicePrimaryCtxGetState, (CUdevice, unsigned *flags, int *is_active)->CUresult {
        *flags = 0;
        *is_active = active;
        return CUDA_SUCCESS;
      });
  FAKE(
      cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice)->CUresult {
        *context = kUnseen;
        return CUDA_SUCCESS;
      });
  FAKE(
      cuDevicePrimaryCtxRelease_v2, (CUdevice)->CUresult {
        active = 0;
        return CUDA_SUCCESS;
      });
  CUcontext retained = nullptr;
  for (unsigned times = 0; times < 2; ++times) {
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&retained, 0), CUDA_SUCCESS);
    EXPECT_EQ(retained, kUnseen);
    EXPECT_EQ(charged(), rank().context_figure(0).bytes);
  }
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 0u);
}

}  // namespace
}  // namespace vgpu::test
