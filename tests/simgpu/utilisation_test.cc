// What NVML says about how busy a device is, under a clock that stands still until it is told.
#include "simgpu/nvml/newer.h"
#include "timed.h"

const char *node_lines() { return "clock=manual; utilisation_lag=500ms; visibility_ms=0"; }

namespace {

constexpr uint64_t kWindowNs = 1000000000 / 6;

class UtilisationTest : public TimedTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(NVML_SUCCESS, nvmlInit_v2());
    ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(0, &device_));
    TimedTest::SetUp();
  }
  void TearDown() override {
    TimedTest::TearDown();
    EXPECT_EQ(NVML_SUCCESS, nvmlShutdown());
  }
  static uint64_t now_ns() { return std::stoull(ctl("clock")); }
  static void advance(uint64_t ns) { ctl("clock advance " + std::to_string(ns)); }
  // To where a window begins; the devices' time begins with one, at 1 s.
  static void to_next_window() { advance(kWindowNs - (now_ns() - 1000000000) % kWindowNs); }
  unsigned rate() {
    nvmlUtilization_t rates{};
    EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetUtilizationRates(device_, &rates));
    return rates.gpu;
  }
  nvmlDevice_t device_ = nullptr;
};

TEST_F(UtilisationTest, NothingIsKnownBeforeTheFirstWindowHasEnded) {
  OK(launch("10s"));
  unsigned count = 8;
  nvmlProcessUtilizationSample_t samples[8];
  nvmlValueType_t type;
  nvmlSample_t values[8];
  EXPECT_EQ(0u, rate());
  EXPECT_EQ(NVML_ERROR_NOT_FOUND, nvmlDeviceGetProcessUtilization(device_, samples, &count, 0));
  count = 8;
  EXPECT_EQ(NVML_ERROR_NOT_FOUND,
            nvmlDeviceGetSamples(device_, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, values));
  advance(kWindowNs - 1);
  EXPECT_EQ(0u, rate());
  advance(1);
  EXPECT_EQ(100u, rate());
  advance(10000000000);
}

TEST_F(UtilisationTest, RatesAreOfTheLastWindow) {
  to_next_window();
  OK(launch("50ms"));
  advance(kWindowNs);
  EXPECT_EQ(30u, rate());
  advance(kWindowNs - 1);
  EXPECT_EQ(30u, rate());
  advance(1);
  EXPECT_EQ(0u, rate());
}

TEST_F(UtilisationTest, SamplesSayWhoseTheyAreAndComeLate) {
  Client other;
  other.must("ctx 0");
  to_next_window();
  advance(kWindowNs * 70);  // what other tests did is forgotten
  uint64_t begin = now_ns();
  OK(launch("40ms"));
  other.must("launch 80ms 1");
  advance(kWindowNs);
  unsigned count = 8;
  nvmlProcessUtilizationSample_t samples[8];
  EXPECT_EQ(72u, rate());
  EXPECT_EQ(NVML_ERROR_NOT_FOUND, nvmlDeviceGetProcessUtilization(device_, samples, &count, begin / 1000));
  advance(499999999);
  count = 8;
  EXPECT_EQ(NVML_ERROR_NOT_FOUND, nvmlDeviceGetProcessUtilization(device_, samples, &count, begin / 1000));
  advance(1);
  count = 8;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetProcessUtilization(device_, samples, &count, begin / 1000));
  ASSERT_EQ(2u, count);
  for (unsigned i = 0; i < count; i++) {
    EXPECT_EQ(samples[i].pid == static_cast<unsigned>(other.pid()) ? 48u : 24u, samples[i].smUtil);
    EXPECT_NEAR(static_cast<double>(begin + kWindowNs) / 1000, static_cast<double>(samples[i].timeStamp), 1);
  }
  unsigned long long seen = samples[0].timeStamp;
  count = 8;
  EXPECT_EQ(NVML_ERROR_NOT_FOUND, nvmlDeviceGetProcessUtilization(device_, samples, &count, seen));
  nvmlProcessUtilizationInfo_v1_t infos[8];
  nvmlProcessesUtilizationInfo_v1_t info{};
  info.version = nvmlProcessesUtilizationInfo_v1;
  info.processSamplesCount = 8;
  info.lastSeenTimeStamp = begin / 1000;
  info.procUtilArray = infos;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetProcessesUtilizationInfo(device_, &info));
  EXPECT_EQ(2u, info.processSamplesCount);
}

TEST_F(UtilisationTest, SamplesOfTheDeviceAreItsWindows) {
  to_next_window();
  uint64_t begin = now_ns();
  for (unsigned percent : {60u, 30u, 0u}) {
    if (percent == 60) {
      OK(launch("100ms"));
    } else if (percent == 30) {
      OK(launch("50ms"));
    }
    advance(kWindowNs);
  }
  advance(500000000);
  nvmlValueType_t type;
  nvmlSample_t values[64];
  unsigned count = 64;
  ASSERT_EQ(NVML_SUCCESS,
            nvmlDeviceGetSamples(device_, NVML_GPU_UTILIZATION_SAMPLES, begin / 1000 + 1, &type, &count, values));
  ASSERT_EQ(3u, count);
  EXPECT_EQ(60u, values[0].sampleValue.uiVal);
  EXPECT_EQ(30u, values[1].sampleValue.uiVal);
  EXPECT_EQ(0u, values[2].sampleValue.uiVal);
  EXPECT_LT(values[0].timeStamp, values[1].timeStamp);
}

}  // namespace
