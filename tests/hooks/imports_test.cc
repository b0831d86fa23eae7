// Shared memory under an NVML that counts it for everybody who holds it: charged once all the same, and never not at all.
#include "own_node.h"
#include "sharing_ways.h"

namespace vgpu::test {
namespace {

class ImportsTest : public OwnNodeTest, public testing::WithParamInterface<Way> {
 protected:
  static constexpr std::uint64_t kLimit = 4096 * kMiB;

  void SetUp() override {
    make("visibility_ms=0; pool_chunk=32MiB; nvml_imports=all", kLimit, {kContext, ContextSource::measured});
    maker_ = &start_with_context();
    user_ = &start_with_context();
  }
  Program &start_with_context() {
    Program &rank = start();
    rank.make("cuCtxCreate_v2", 0);
    return rank;
  }
  // Whoever looks, and for however long: the books are the device's. `anybody` does now and then what makes it look.
  void expect_truth(const std::vector<Program *> &anybody, double for_ms) {
    for (const double start_ms = now_ms(); now_ms() - start_ms < for_ms; sleep_ms(50)) {
      for (Program *rank : anybody) rank->must("call cuCtxSynchronize");
    }
    EXPECT_EQ(charged(), held());
  }
  void settle_until_true(Program &rank) {
    for (int waited = 0; charged() != held() && waited < 100; ++waited) {
      sleep_ms(50);
      rank.must("info");
    }
    EXPECT_EQ(charged(), held());
  }

  Program *maker_ = nullptr, *user_ = nullptr;
};

TEST_P(ImportsTest, IsChargedOnce) {
  const SharedBytes shared = GetParam().share(*maker_, *user_);
  EXPECT_EQ(held(), 2 * kContext + shared.charged);
  EXPECT_EQ(charged(), held());
  expect_truth({maker_, user_}, 1200);
  expect_truth({maker_}, 1500);  // looks for the other, too
  // What else the user takes is its own.
  user_->make("cuMemAlloc_v2", 4 * kMiB);
  user_->make("cuModuleLoadData", 4 * kMiB);
  settle_until_true(*user_);
  user_->must(shared.free_in_user);
  settle_until_true(*user_);
  maker_->must(shared.free_in_maker);
  maker_->must("call cuCtxSynchronize");
  settle_until_true(*maker_);
}

TEST_P(ImportsTest, WhoeverIsLeftPays) {
  const SharedBytes shared = GetParam().share(*maker_, *user_);
  expect_truth({maker_, user_}, 600);
  maker_->end(SIGKILL);
  for (int waited = 0; held() > kContext + shared.charged && waited < 5000; ++waited) sleep_ms(1);
  settle_until_true(*user_);
  EXPECT_EQ(held(), kContext + shared.charged);
  user_->must(shared.free_in_user);
  settle_until_true(*user_);
  EXPECT_EQ(held(), kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, ImportsTest, testing::ValuesIn(kFollowedWays),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace vgpu::test
