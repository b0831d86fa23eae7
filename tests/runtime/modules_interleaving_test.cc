// Two threads that load and unload modules at once, with a driver that lets the other one in and an NVML that says what the
// test tells it to.
#include <unistd.h>

#include <functional>

#include "fake_driver.h"

namespace vgpu::test {
namespace {

constexpr std::uint64_t kLimit = 32 * kMiB;
const auto kOnlyContext = reinterpret_cast<CUcontext>(0x1000);

std::uint64_t shown;  // by NVML
std::uint64_t module_bytes;
std::function<void()> meanwhile;  // what the other thread does while the driver loads

class ModulesTest : public AttachedTest {
 protected:
  void SetUp() override {
    attach_to_the_only_device(kLimit);
    FAKE(
        nvmlInit_v2, ()->nvmlReturn_t { return NVML_SUCCESS; });
    FAKE(
        nvmlDeviceGetHandleByUUID, (const char *, nvmlDevice_t *device)->nvmlReturn_t {
          *device = reinterpret_cast<nvmlDevice_t>(0x3000);
          return NVML_SUCCESS;
        });
    FAKE(
        nvmlDeviceGetComputeRunningProcesses,
        (nvmlDevice_t, unsigned *count, nvmlProcessInfo_v1_t *entries)->nvmlReturn_t {
          entries[0] = {static_cast<unsigned>(getpid()), shown};
          *count = 1;
          return NVML_SUCCESS;
        });
    FAKE(
        cuCtxGetCurrent, (CUcontext * context)->CUresult {
          *context = kOnlyContext;
          return CUDA_SUCCESS;
        });
    FAKE(
        cuCtxCreate_v2, (CUcontext * context, unsigned, CUdevice)->CUresult {
          *context = kOnlyContext;
          return CUDA_SUCCESS;
        });
    FAKE(
        cuModuleLoadData, (CUmodule * module, const void *)->CUresult {
          if (meanwhile) std::exchange(meanwhile, nullptr)();
          shown += module_bytes;
          *module = reinterpret_cast<CUmodule>(module_bytes);
          return CUDA_SUCCESS;
        });
    FAKE(
        cuModuleUnload, (CUmodule module)->CUresult {
          shown -= reinterpret_cast<std::uint64_t>(module);
          return CUDA_SUCCESS;
        });
  }

  static CUresult load(std::uint64_t bytes, CUmodule *module) {
    module_bytes = bytes;
    return cuModuleLoadData(module, "");
  }
};

// The other thread's look gives back, as modules, what was reserved for this one.
TEST_F(ModulesTest, WhatIsTakenBackWasCharged) {
  shown = 6 * kMiB;
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  CUmodule first = nullptr, second = nullptr;
  ASSERT_EQ(load(2 * kMiB, &first), CUDA_SUCCESS);
  EXPECT_EQ(used(), 2 * kMiB);
  meanwhile = [&] {
    shown -= 2 * kMiB;  // something else went with it
    ASSERT_EQ(cuModuleUnload(first), CUDA_SUCCESS);
  };
  EXPECT_EQ(load(2 * kLimit, &second), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 0u);

  // The books can still be compared with the device.
  ASSERT_EQ(load(2 * kMiB, &first), CUDA_SUCCESS);
  EXPECT_EQ(rank().memory_used(0), shown);
}

}  // namespace
}  // namespace vgpu::test
