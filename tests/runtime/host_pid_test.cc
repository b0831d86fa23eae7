// What a process is called on the node, where a PID namespace hides it.
#include <fcntl.h>
#include <signal.h>

#include <algorithm>

#include "base/file_lock.h"
#include "hooks/nvml_support.h"
#include "region/files.h"

namespace vgpu::test {

using namespace region;

namespace {

class HostPid : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can make a PID namespace";
  }
};

double ms_for(Client &client, const std::string &line) {
  const double start = now_ms();
  EXPECT_EQ("0", client.ask(line));
  return now_ms() - start;
}

TEST_F(HostPid, EightRanksAtOnceFindTheirs) {
  Job job;
  Client busy(nullptr);  // somebody else is there already
  EXPECT_EQ("0", busy.ask("ctx 1"));
  wait_until_visible(kSlow, {&busy});
  std::vector<std::unique_ptr<Client>> ranks;
  for (unsigned i = 0; i < 8; ++i) ranks.push_back(std::make_unique<Client>(&job, Where::pid_namespace));
  for (auto &rank : ranks) EXPECT_EQ("0 1", rank->ask("pid"));  // all call themselves the same
  for (auto &rank : ranks) rank->tell("ctx 1");
  for (auto &rank : ranks) EXPECT_EQ("0", rank->answer());
  std::vector<std::uint64_t> expected;
  std::vector<const Client *> all;
  for (auto &rank : ranks) {
    expected.push_back(static_cast<std::uint64_t>(rank->host_pid()));
    all.push_back(rank.get());
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(expected, job.noted_host_pids());
  // So each was measured, and each sees all of them.
  EXPECT_EQ(8 * kContextBytes, job.used(kSlow));
  for (auto &rank : ranks) {
    EXPECT_EQ("0 8 128" + as_listed(kSlow, all), in_order(rank->ask("list ComputeRunningProcesses 1 64 16"), 3));
  }
}

TEST_F(HostPid, TheJobsProcessesOutsideAreSeenInsideAndTheOtherWayRound) {
  SKIP_IN_PID_NAMESPACE("nobody is outside");
  Job job;
  Client outside(&job), inside(&job, Where::pid_namespace), monitor(&job, Where::pid_namespace), stranger(nullptr);
  for (Client *client : {&outside, &inside, &stranger}) EXPECT_EQ("0", client->ask("ctx 0"));
  const std::string expected = "0 2 32" + as_listed(kFast, {&outside, &inside});
  for (Client *client : {&outside, &inside, &monitor}) {
    EXPECT_EQ(expected, in_order(client->ask("list ComputeRunningProcesses 0 64 16"), 3));
  }
}

TEST_F(HostPid, NothingIsAskedWhereGetpidIsRight) {
  SKIP_IN_PID_NAMESPACE("getpid is not right");
  Job job;
  double quickest = 1e9;
  for (unsigned i = 0; i < 5; ++i) {
    Client client(&job);
    EXPECT_EQ("0", client.ask("init"));
    EXPECT_EQ("0 none", client.ask("nvml")) << "NVML was opened before there was a context";
    quickest = std::min(quickest, ms_for(client, "ctx 2"));
    EXPECT_EQ("0 open", client.ask("nvml"));
  }
  EXPECT_LT(quickest, 100) << "the search would take 200 ms where a process never shows";
}

TEST_F(HostPid, InANamespaceNvmlIsNotOpenedBeforeTheFirstContext) {
  Job job;
  Client client(&job, Where::pid_namespace);
  EXPECT_EQ("0", client.ask("init"));
  EXPECT_EQ("0 none", client.ask("nvml"));
}

TEST_F(HostPid, WhoNeverShowsGivesUpOnceAndGoesOn) {
  Job job;
  Client client(&job, Where::pid_namespace);
  const double took = ms_for(client, "ctx 2");
  EXPECT_GT(took, 190);
  EXPECT_LT(took, 2000);
  EXPECT_EQ(0u, job.noted_host_pid(1));
  EXPECT_EQ("0", client.ask("alloc 4194304"));
  double again = 1e9;
  for (unsigned i = 0; i < 2; ++i) again = std::min(again, ms_for(client, "ctx 2"));
  EXPECT_LT(again, 190) << "it searched again where it is no longer new";
  // On another device it is new once more.
  EXPECT_EQ("0", client.ask("ctx 0"));
  EXPECT_EQ(static_cast<std::uint64_t>(client.host_pid()), job.noted_host_pid(1));
}

TEST_F(HostPid, SignalsDoNotCutTheSearchShort) {
  Job job;
  Client client(&job, Where::pid_namespace);
  EXPECT_EQ("0", client.ask("init"));
  EXPECT_EQ("0", client.ask("alarmedctx 1"));
  EXPECT_EQ(static_cast<std::uint64_t>(client.host_pid()), job.noted_host_pid(1));
}

TEST_F(HostPid, ADriverThatSpeaksOfTheNamespaceIsUnderstood) {
  SKIP_IN_PID_NAMESPACE("nobody is outside");
  const std::map<std::string, std::string> local = {{"SIMGPU_NVML_PIDS", "namespace"}};
  Job job;
  Client outside(&job, Where::here, local), inside(&job, Where::pid_namespace, local), stranger(nullptr);
  for (Client *client : {&stranger, &outside, &inside}) EXPECT_EQ("0", client->ask("ctx 1"));
  wait_until_visible(kSlow, {&outside, &inside});
  const std::string bytes = std::to_string(kContextBytes);
  EXPECT_EQ("0 1 16 1=" + bytes, inside.ask("list ComputeRunningProcesses 1 64 16"));
  EXPECT_EQ(0u, job.noted_host_pid(1)) << "that is not what the host calls it";
  // Measured like any other: what was not known when the first was made is known after the next allocation.
  EXPECT_EQ("0", inside.ask("alloc 4194304"));
  EXPECT_EQ("0", outside.ask("alloc 4194304"));
  EXPECT_EQ(2 * (kContextBytes + 4 * kMiB), job.used(kSlow));
}

TEST_F(HostPid, AndRanksAreKnownByTheNumbersTheyHaveThere) {
  Job job;
  Client inside(&job, Where::pid_namespace, {{"SIMGPU_NVML_PIDS", "namespace"}}), stranger(nullptr);
  EXPECT_EQ("0", stranger.ask("ctx 0"));
  EXPECT_EQ("0", inside.ask("crowd 0 2"));
  const std::string bytes = std::to_string(kContextBytes);
  EXPECT_EQ("0 2 32 2=" + bytes + " 3=" + bytes, in_order(inside.ask("list ComputeRunningProcesses 0 64 16"), 3));
}

TEST_F(HostPid, AKilledSearcherHoldsNobodyUp) {
  Job job;
  auto victim = std::make_unique<Client>(&job, Where::pid_namespace);
  Client next(&job, Where::pid_namespace);
  EXPECT_EQ("0 1", next.ask("pid"));
  victim->tell("ctx 2");
  sleep_ms(60);
  next.tell("ctx 0");
  sleep_ms(20);
  const double start = now_ms();
  victim.reset();
  EXPECT_EQ("0", next.answer());
  EXPECT_LT(now_ms() - start, 1000);
  const std::vector<std::uint64_t> noted = job.noted_host_pids();
  EXPECT_NE(noted.end(), std::find(noted.begin(), noted.end(), static_cast<std::uint64_t>(next.host_pid())));
}

TEST_F(HostPid, WhoDoesNotGetHisTurnGoesOnWithoutANumber) {
  Job job;
  Region region;
  ASSERT_FALSE(Region::attach(job.directory().c_str(), Trust::root_or_self, &region));
  const ScopedFd usage = reopen_usage(region.usage_path(), O_RDWR);
  FileLock lock;
  ASSERT_FALSE(FileLock::acquire(usage.get(), kDetectionByte, 0, &lock));
  Client client(&job, Where::pid_namespace);
  const double took = ms_for(client, "ctx 0");
  EXPECT_GT(took, 9000);
  EXPECT_LT(took, 15000);
  EXPECT_EQ(0u, job.noted_host_pid(1));
}

// What a rank that is gone was called may be what somebody else is called now.
TEST_F(HostPid, TheNumberOfADeadRankIsNobodys) {
  Job job;
  Client stranger(nullptr), monitor(&job);
  auto rank = std::make_unique<Client>(&job, Where::pid_namespace);
  EXPECT_EQ("0", stranger.ask("ctx 0"));
  EXPECT_EQ("0", rank->ask("ctx 0"));
  Region region;
  ASSERT_FALSE(Region::attach(job.directory().c_str(), Trust::root_or_self, &region));
  for (unsigned slot = 1; slot < kSlots; ++slot) {
    Word &host_pid = region.usage().info(slot).host_pid;
    if (host_pid.load() != 0) host_pid.store(static_cast<std::uint64_t>(stranger.host_pid()));
  }
  const std::string line = "list ComputeRunningProcesses 0 64 16";
  EXPECT_EQ("0 1 16" + as_listed(kFast, {&stranger}), monitor.ask(line));
  rank.reset();
  std::string list;
  for (unsigned tries = 0; tries < 200 && list != "0 0 0"; ++tries) {
    sleep_ms(10);
    list = monitor.ask(line);
  }
  EXPECT_EQ("0 0 0", list);
}

// Somebody outside the job becomes visible in just the moment in which a rank looks for itself.
TEST_F(HostPid, WhoTookAnotherForHimselfNoticesBySizeAndFindsHisOwn) {
  Job job;
  Client stranger(nullptr), client(&job, Where::pid_namespace);
  EXPECT_EQ("0", stranger.ask("init"));
  EXPECT_EQ("0", client.ask("init"));
  EXPECT_EQ("0", stranger.ask("ctx 1"));
  sleep_ms(kSlowMs / 2);
  EXPECT_EQ("0", client.ask("ctx 1"));
  // Allocations look at NVML once a second, if there are some.
  EXPECT_EQ("0", client.ask("alloc " + std::to_string(64 * kMiB)));
  const auto own = static_cast<std::uint64_t>(client.host_pid());
  EXPECT_NE(own, job.noted_host_pid(1));
  // It takes a few looks to doubt a number. Then that is found whose memory follows: each allocation changes both.
  for (unsigned tries = 0; tries < 100 && job.noted_host_pid(1) != own; ++tries) {
    EXPECT_EQ("0", client.ask("alloc " + std::to_string(2 * kMiB)));
    sleep_ms(50);
  }
  EXPECT_EQ(own, job.noted_host_pid(1));
  const std::string list = client.ask("list ComputeRunningProcesses 1 64 16");
  EXPECT_EQ(std::string::npos, list.find(" " + std::to_string(stranger.host_pid()) + "=")) << list;
  EXPECT_NE(std::string::npos, list.find(" " + std::to_string(own) + "=")) << list;
}

}  // namespace

}  // namespace vgpu::test
