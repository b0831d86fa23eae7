// vgpuctl report, and what it is made from.
#include "support.h"

namespace vgpu::test {

using namespace node;
namespace {

// ---- report ---------------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, ReportsEndedJobs) {
  const std::string record = scratch_.path() + "/jobs.jsonl";
  std::filesystem::copy_file(VGPU_SOURCE_DIR "/tests/vgpuctl/golden/jobs.jsonl", record);
  for (const char *job : {"7", "8", "20", "21", "22"}) {
    const Result result = run({"report", job, "--record", record});
    EXPECT_EQ(result.status, 0) << result.err;
    expect_golden(std::string("report-") + job + ".txt", result.out);
  }
  EXPECT_EQ(run({"report", "8", "--json", "--record", record}).out.rfind("{\"version\":1,\"job\":8,", 0), 0u);
  Result result = run({"report", "9", "--record", record});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("job 9 is not in"), std::string::npos) << result.err;
  result = run({"report", "10", "--record", record});
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(result.err.find("is damaged or of another version"), std::string::npos) << result.err;
  result = run({"report", "7", "--record", scratch_.path() + "/none"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("there is no record of ended jobs"), std::string::npos) << result.err;
}

TEST_F(Vgpuctl, KeepsAHistoryForTheReport) {
  create(7, 0, {8 * kGiB, 4 * kGiB}, 50);
  EXPECT_TRUE(add_rank(7).reserve(kGiB));
  EXPECT_FALSE(ranks_.back()->reserve(8 * kGiB));
  EXPECT_EQ(run({"metrics", "--no-sm"}).status, 0);
  sleep_ms(100);
  EXPECT_EQ(run({"metrics", "--no-sm"}).status, 0);
  EXPECT_EQ(run({"set", "7", "-i", "0", "--gpu-mem=12G"}).status, 0);
  EXPECT_FALSE(ranks_.back()->reserve(16 * kGiB));
  History history;
  ASSERT_FALSE(read_history(path("7"), 2, &history));
  EXPECT_GE(history.devices[0].sampled_s, 0.1);
  EXPECT_NEAR(history.devices[0].byte_seconds / history.devices[0].sampled_s, static_cast<double>(kGiB), 1);
  EXPECT_EQ(history.devices[1].byte_seconds, 0);
  EXPECT_EQ(history.devices[0].first_limit, 8 * kGiB);
  EXPECT_EQ(history.devices[0].highest_limit, 12 * kGiB);
  EXPECT_EQ(history.devices[0].highest_sm, 50u);
  EXPECT_EQ(history.devices[0].refused_before, 1u);
  EXPECT_EQ(history.devices[1].first_limit, 0u) << "that one was not changed";
}

}  // namespace
}  // namespace vgpu::test
