// A driver that answers what a test tells it to, in place of hooks/resolve.cc, for tests of single parts of the library.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "driver/table.h"
#include "region/support.h"
#include "runtime/runtime.h"

namespace vgpu::test {

using namespace driver;
using namespace region;
using namespace runtime;

inline std::map<Symbol, void *> fake_functions;

// FAKE(cuCtxGetDevice, (CUdevice *device) { ... }) stands for the driver's function until the test ends.
#define FAKE(symbol, ...)                                        \
  ::vgpu::test::fake_functions[::vgpu::driver::Symbol::symbol] = \
      reinterpret_cast<void *>(static_cast<decltype(&::symbol)>([] __VA_ARGS__))

// A region, to which this process is attached as the library would attach it.
class AttachedTest : public testing::Test {
 protected:
  ~AttachedTest() override {
    runtime_mode.store(Mode::unknown);
    runtime_state.store(nullptr);
    fake_functions.clear();
  }
  void attach(const std::vector<DeviceSpec> &devices) {
    ASSERT_FALSE(Region::create(directory_.path().c_str(), "7", make_spec(devices)));
    ASSERT_FALSE(Region::attach((directory_.path() + "/7").c_str(), Trust::root_or_self, &state_.region));
    ASSERT_FALSE(Rank::attach(state_.region, &state_.rank));
    runtime_state.store(&state_);
    runtime_mode.store(Mode::active);
  }
  // One device, which is also the driver's only one and the one of whatever context is current.
  void attach_to_the_only_device(std::uint64_t limit) {
    std::vector<DeviceSpec> devices = make_devices(1, limit);
    std::strcpy(devices[0].identity.uuid, "GPU-00000000-0000-0000-0000-000000000000");
    devices[0].context = {kMiB, ContextSource::site};  // or the first one would be waited for
    attach(devices);
    FAKE(
        cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice)->CUresult {
          *uuid = {};
          return CUDA_SUCCESS;
        });
    FAKE(
        cuCtxGetDevice, (CUdevice * device)->CUresult {
          *device = 0;
          return CUDA_SUCCESS;
        });
  }
  // Without contexts, and blocks that are charged ahead.
  std::uint64_t used(unsigned dev = 0) const {
    return state_.region.memory_used(dev) - state_.rank.idle(dev) - state_.rank.memory_held(dev, Kind::context);
  }

 private:
  TemporaryDirectory directory_;
  Runtime state_;
};

}  // namespace vgpu::test
