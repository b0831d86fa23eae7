// NVML's window of the host into a device's memory is no larger than what the job has of that memory.
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

class Bar1Test : public HooksTest {
 protected:
  Answer ask(const std::string &region) {
    Program program(node(), region);
    program.must("nvml init");
    return program.ask("bar1 0");
  }
};

TEST_F(Bar1Test, FollowsTheLimit) {
  const Answer whole = ask("");
  limit_to(256 * kMiB);
  const Answer ours = ask(region());
  ASSERT_EQ(ours.result, 0);
  EXPECT_EQ(ours.number(1), 256 * kMiB);
  const double part = static_cast<double>(256 * kMiB) / static_cast<double>(whole.number(1));
  EXPECT_NEAR(static_cast<double>(ours.number(3)), part * static_cast<double>(whole.number(3)), 1) << "of what is used";
  EXPECT_EQ(ours.number(2), ours.number(1) - ours.number(3));
}

TEST_F(Bar1Test, IsTheDevicesWhereThereIsNoLimit) {
  const Answer whole = ask("");
  limit_to(kNoLimit);
  EXPECT_EQ(ask(region()).values, whole.values);
}

}  // namespace
}  // namespace vgpu::test
