// An SM limit beside captures, on a device that is as strict about them as CUDA's documentation.
#include "hooks/own_node.h"

namespace vgpu::test {
namespace {

constexpr unsigned kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;
constexpr const char *kLegacy = "0";

class CaptureTest : public OwnNodeTest {
 protected:
  void SetUp() override {
    sm_percent_ = 50;
    make("profile=hardware", 8192 * kMiB);
    program_ = &start();
    context_ = program_->make("cuCtxCreate_v2", 0);
    captured_ = stream(CU_STREAM_NON_BLOCKING);
    other_ = stream(CU_STREAM_NON_BLOCKING);
  }

  std::string stream(unsigned flags) { return text(program_->must("call cuStreamCreate " + text(flags))); }
  void begin(unsigned mode) { program_->must("call begin_capture " + captured_ + " " + text(mode)); }
  int end() { return program_->ask("call cuStreamEndCapture " + captured_).result; }
  // How many milliseconds the longest launch took.
  std::uint64_t longest(const std::string &where, const std::string &stream, const std::string &kernel, int count) {
    program_->must("call load " + kernel);
    return program_->must(where + "call launches " + stream + " " + kernel + " " + std::to_string(count)) / 1000;
  }
  // What is launched here for the first time is measured, so that only the first launches wait for a guess, and not for
  // all of it: they are 10 ms of work at half of the time. Unmeasured, each would wait for 50 ms.
  void expect_measured(const std::string &kernel) {
    program_->must("call load " + kernel);
    const Answer answer = program_->ask(std::string("call launches ") + kLegacy + " " + kernel + " 10");
    ASSERT_EQ(answer.result, 0);
    EXPECT_LT(answer.number(1) / 1000, 250u);
  }

  Program *program_ = nullptr;
  std::uint64_t context_ = 0;
  std::string captured_, other_;
};

// A guess is 25 ms, 50 at half of the time, and no launch waits for more than one; the rest is for a busy machine. Guesses
// that feed themselves have the last one wait for seconds.
constexpr std::uint64_t kLongestMs = 150;

TEST_F(CaptureTest, AnUnmeasuredKernelBesideACaptureWaitsForOneGuessAtMost) {
  begin(kGlobal);
  for (const char *kernel : {"a_1ms", "b_1ms", "c_1ms", "d_1ms", "e_1ms", "f_1ms"}) {
    EXPECT_LT(longest("thread ", other_, kernel, 2), kLongestMs) << kernel;
  }
  // Nothing can be measured in the legacy stream now.
  EXPECT_LT(longest("thread ", kLegacy, "g_1ms", 8), kLongestMs);
  EXPECT_EQ(end(), CUDA_SUCCESS);
}

TEST_F(CaptureTest, OurEventsSpoilNoCapture) {
  for (const unsigned mode : {kGlobal, kThreadLocal, kRelaxed}) {
    begin(mode);
    longest("", other_, "2ms", 40);
    longest("thread ", other_, "2000us", 40);
    EXPECT_EQ(end(), CUDA_SUCCESS) << mode;
  }
}

// The program's own question spoils it, which shows that this device minds.
TEST_F(CaptureTest, TheProgramsOwnMay) {
  begin(kGlobal);
  EXPECT_EQ(program_->ask("thread call cuStreamSynchronize " + other_).result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  expect_measured("1ms");
}

TEST_F(CaptureTest, LaunchesIntoACaptureAreFree) {
  longest("", other_, "20ms", 5);
  begin(kGlobal);
  EXPECT_LT(longest("", captured_, "20ms", 50), 100u) << "two seconds of work";
  EXPECT_EQ(end(), CUDA_SUCCESS);
}

TEST_F(CaptureTest, ADestroyedStreamIsForgotten) {
  begin(kGlobal);
  program_->must("call cuStreamDestroy_v2 " + captured_);
  expect_measured("1ms");
}

TEST_F(CaptureTest, SoAreTheStreamsOfADestroyedContext) {
  begin(kGlobal);
  program_->drop("cuCtxDestroy_v2", context_);
  program_->make("cuCtxCreate_v2", 0);
  expect_measured("1ms");
}

TEST_F(CaptureTest, AndThoseOfAResetDevice) {
  const std::uint64_t primary = program_->make("cuDevicePrimaryCtxRetain", 0);
  program_->must("current " + text(primary));
  captured_ = stream(CU_STREAM_NON_BLOCKING);
  begin(kGlobal);
  program_->must("current " + text(context_));
  program_->drop("cuDevicePrimaryCtxReset_v2", 0);
  expect_measured("1ms");
}

TEST_F(CaptureTest, ACaptureThatDoesNotBeginIsNotCounted) {
  EXPECT_NE(program_->ask(std::string("call begin_capture 1 ") + text(kGlobal)).result, CUDA_SUCCESS);
  begin(kGlobal);
  EXPECT_EQ(program_->ask("call begin_capture " + captured_ + " " + text(kGlobal)).result, CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_LT(longest("", captured_, "a_100ms", 5), 100u) << "it is still being captured";
  EXPECT_EQ(program_->ask("thread call cuStreamEndCapture " + captured_).result,
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  EXPECT_LT(longest("", captured_, "a_100ms", 5), 100u) << "it still is";
  EXPECT_EQ(end(), CUDA_SUCCESS);
  expect_measured("1ms");
}

}  // namespace
}  // namespace vgpu::test
