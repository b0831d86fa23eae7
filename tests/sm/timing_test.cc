// What a program measures with events under an SM limit: its own work, and not how long its launches had to wait.
#include "hooks/own_node.h"

namespace vgpu::test {
namespace {

class TimingTest : public OwnNodeTest {
 protected:
  void SetUp() override {
    sm_percent_ = 50;
    make("profile=hardware", 8192 * kMiB);
    program_ = &start();
    program_->make("cuCtxCreate_v2", 0);
    stream_ = make_stream();
  }

  std::string make_stream() { return text(program_->must("call cuStreamCreate " + text(CU_STREAM_NON_BLOCKING))); }
  std::string make_event() { return text(program_->must("call cuEventCreate")); }
  void record(const std::string &event, const std::string &stream) {
    program_->must("call cuEventRecord " + event + " " + stream);
  }
  void launch(const std::string &kernel, int count) {
    program_->must("call launches " + stream_ + " " + kernel + " " + std::to_string(count));
  }
  std::uint64_t elapsed_us(const std::string &start, const std::string &end) {
    program_->must("call cuStreamSynchronize " + stream_);
    return program_->must("call cuEventElapsedTime " + start + " " + end);
  }
  // The median of what events say of a kernel of 1 ms.
  std::uint64_t median_us(const std::string &how) {
    return program_->must("call autotune " + stream_ + " 1ms 100 " + how);
  }

  Program *program_ = nullptr;
  std::string stream_;
};

// The kernel, and what is between it and its events without a limit.
constexpr std::uint64_t kLeastUs = 990, kMostUs = 1100;

TEST_F(TimingTest, AHundredPairs) {
  const std::uint64_t median = median_us("0");
  EXPECT_GE(median, kLeastUs);
  EXPECT_LE(median, kMostUs) << "2 ms, with our waiting";
}

TEST_F(TimingTest, ChainedEvents) {
  const std::uint64_t median = median_us("1");
  EXPECT_GE(median, kLeastUs);
  EXPECT_LE(median, kMostUs);
}

// Launches waited while others were still running: that time is theirs.
TEST_F(TimingTest, AStreamThatHadWorkLosesNothing) {
  launch("5ms", 3);
  const std::string start = make_event(), end = make_event();
  record(start, stream_);
  launch("5ms", 20);
  record(end, stream_);
  const std::uint64_t measured = elapsed_us(start, end);
  EXPECT_GE(measured, 20u * 5000);
  EXPECT_LE(measured, 20u * 5000 * 3 / 2) << "200 ms, with our waiting";
  EXPECT_EQ(program_->must("call cuEventElapsedTime_v2 " + start + " " + end), measured);
}

// Nor does one to which another thread gave work meanwhile: then there is no telling, and nothing is taken out.
TEST_F(TimingTest, AStreamOfTwoThreadsLosesNothing) {
  const std::string start = make_event(), other = make_event(), end = make_event();
  launch("100ms", 1);
  record(start, stream_);
  program_->must("call cuStreamSynchronize " + stream_);
  program_->must("call launch_beside_another " + stream_ + " 100ms " + other);  // waits for as long again
  record(end, stream_);
  EXPECT_GE(elapsed_us(start, end), 125'000u) << "the kernel, and the 30 ms of the other thread";
}

TEST_F(TimingTest, ThePerThreadStreamToo) {
  const std::string start = make_event(), end = make_event();
  program_->must("call cuLaunchKernel_ptsz 5ms 3");
  program_->must("call cuEventRecord_ptsz " + start + " 0");
  program_->must("call cuLaunchKernel_ptsz 5ms 20");
  program_->must("call cuEventRecordWithFlags_ptsz " + end + " 0");
  program_->must("call cuCtxSynchronize");
  const std::uint64_t measured = program_->must("call cuEventElapsedTime " + start + " " + end);
  EXPECT_GE(measured, 20u * 5000);
  EXPECT_LE(measured, 20u * 5000 * 3 / 2);
}

// Between events of two streams there is no telling what waited for what.
TEST_F(TimingTest, EventsOfTwoStreamsAreLeftAsTheyAre) {
  const std::string start = make_event(), end = make_event(), other = make_stream();
  launch("5ms", 3);
  record(start, other);
  launch("5ms", 20);
  record(end, stream_);
  EXPECT_GE(elapsed_us(start, end), 20u * 5000 * 3 / 2);
}

// An event that was recorded again is where it was recorded last; one that is destroyed is nowhere.
TEST_F(TimingTest, OnlyWaitsBetweenTheTwoCount) {
  const std::string start = make_event(), end = make_event();
  record(start, stream_);
  launch("5ms", 20);
  record(start, stream_);
  record(end, stream_);
  EXPECT_LE(elapsed_us(start, end), 1000u);
  program_->must("call cuEventDestroy_v2 " + start);
  const std::string again = make_event();
  record(again, stream_);
  launch("5ms", 20);
  record(end, stream_);
  const std::uint64_t measured = elapsed_us(again, end);
  EXPECT_GE(measured, 20u * 5000);
  EXPECT_LE(measured, 20u * 5000 * 3 / 2);
}

// Waits without an event between them are one; of others, more than a thousand are remembered.
TEST_F(TimingTest, WithMoreWaitsThanAreRememberedThePairIsLeftAsItIs) {
  constexpr std::uint64_t kWaits = 1100, kKernelUs = 2000;
  const std::string first = make_event(), middle = make_event(), between = make_event(), last = make_event();
  launch("2ms", 5);
  record(first, stream_);
  launch("2ms", kWaits);
  record(middle, stream_);
  EXPECT_LE(elapsed_us(first, middle), kWaits * kKernelUs * 3 / 2);
  const std::string rest = stream_ + " 2ms " + text(kWaits) + " " + between;
  program_->must("call launches_and_records " + rest);
  record(last, stream_);
  EXPECT_GE(elapsed_us(middle, last), kWaits * kKernelUs * 3 / 2);
  EXPECT_LE(elapsed_us(between, last), 1000u);
}

}  // namespace
}  // namespace vgpu::test
