// vgpuctl where it changes something: set and gc.
#include <fcntl.h>
#include <sys/file.h>

#include <set>

#include "node/running_steps.h"
#include "support.h"

namespace vgpu::test {
namespace {

using Words = std::vector<std::string>;

// ---- set ------------------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, SetsLimitsWhileTheJobRuns) {
  prepare();
  RankProcess &rank = *ranks_[0];
  EXPECT_FALSE(rank.reserve(8 * kGiB));
  Result result = run({"set", "7", "--gpu-mem=12G,4G", "--gpu-sm=60"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out,
            "job 7, GPU 0: 12GiB of memory, 60% of the SMs\njob 7, GPU 1: 4GiB of memory, 60% of the SMs\n");
  EXPECT_TRUE(rank.reserve(8 * kGiB));
  result = run({"set", "7", "--gpu-mem=25%", "-i", "0"});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("GPU 0: 4GiB of memory"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("GPU 1: 4GiB of memory"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("it keeps them, and gets nothing more"), std::string::npos) << result.err;
  EXPECT_FALSE(rank.reserve(kMiB));
}

// The file in which a job counts is its user's; its limits are root's.
TEST_F(Vgpuctl, SetIsVetoedByNoUser) {
  create(7, 1, {8 * kGiB, 8 * kGiB});
  const std::string usage = path("7") + "/usage";
  const auto size = std::filesystem::file_size(usage);
  unsigned limit = 1;
  const auto expect_set = [&](const char *how) {
    SCOPED_TRACE(how);
    const std::string text = std::to_string(++limit) + "G";
    Result result = run({"set", "7", "--gpu-mem=" + text});
    EXPECT_EQ(result.status, 0) << result.err;
    result = run({"list", "-nP", "-o", "gpu,mem-limit,mem-used,state"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "0|" + text + "iB|-|damaged\n1|" + text + "iB|-|damaged\n");
    EXPECT_EQ(result.err.find("vgpu: job 7: "), 0u) << result.err;
    result = run({"metrics", "--no-sm"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("vgpu_unreadable_regions{Hostname=\"n1\"} 1"), std::string::npos) << result.out;
    EXPECT_NE(run({"show", "7"}).out.find("what it uses is not known"), std::string::npos);
    EXPECT_NE(run({"list", "--json"}).out.find("\"unreadable\""), std::string::npos);
  };
  ASSERT_EQ(chmod(usage.c_str(), 0666), 0);
  expect_set("chmod 666");
  ASSERT_EQ(chmod(usage.c_str(), 0600), 0);
  std::filesystem::resize_file(usage, 0);
  expect_set("truncated");
  std::filesystem::resize_file(usage, 100 * size);
  expect_set("grown");
  std::filesystem::resize_file(usage, size);
  const ScopedFd leased(open(usage.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(fcntl(leased.get(), F_SETLEASE, F_WRLCK), 0);
  signal(SIGIO, SIG_IGN);
  expect_set("a lease");
}

TEST_F(Vgpuctl, RefusesLimitsThatDoNotFit) {
  prepare();
  const struct {
    Words words;
    const char *says;
  } rows[] = {
      {{"set", "7", "--gpu-mem=15G", "-i", "0"}, "do not fit beside the"},
      {{"set", "7", "--gpu-mem=17G", "-i", "0"}, "GPU 0 has no more than 16GiB"},
      {{"set", "7", "--gpu-mem=1G,2G,3G"}, "has 3 values, but there are 2 GPUs"},
      {{"set", "7", "--gpu-mem=1G", "-i", "5"}, "job 7 has no such GPU"},
      {{"set", "12", "--gpu-sm=50"},
       "launches are not hooked; start it with --gpu-sm, or set sm=live in plugstack.conf for all jobs"},
  };
  const std::string before = run({"list", "--json"}).out;
  for (const auto &row : rows) {
    const Result result = run(row.words);
    EXPECT_EQ(result.status, 1) << row.says;
    EXPECT_NE(result.err.find(row.says), std::string::npos) << result.err;
  }
  EXPECT_EQ(run({"set", "8", "--gpu-mem=1G"}).status, 2);
  EXPECT_EQ(run({"list", "--json"}).out, before);
  EXPECT_EQ(run({"set", "7", "--gpu-mem=15G", "-i", "0", "--force"}).status, 0);
}

TEST_F(Vgpuctl, KnowsHowMuchTheSiteOvercommits) {
  create(7, 0, {8 * kGiB});
  create(12, 0, {8 * kGiB});
  const Words raise = {"set", "7", "--gpu-mem=12G"};
  Result result = run(raise);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("so it is not known whether the site overcommits"), std::string::npos) << result.err;
  std::ofstream(conf("plugstack.conf")) << "required spank_vgpu.so overcommit=1.2\n";
  result = run(raise);
  EXPECT_EQ(result.status, 1) << "20 GiB are more than 1.2 times 16 GiB";
  EXPECT_EQ(result.err.find("not known"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("--force sets it all the same"), std::string::npos) << result.err;
  std::ofstream(conf("plugstack.conf")) << "required spank_vgpu.so overcommit=1.25\n";
  result = run(raise);
  EXPECT_EQ(result.status, 0) << result.err;
  std::ofstream(conf("plugstack.conf")) << "required spank_vgpu.so overcommit=many\n";
  result = run({"set", "7", "--gpu-mem=13G"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("overcommit=many: that is not a factor"), std::string::npos) << result.err;
}

// ---- gc -------------------------------------------------------------------------------------------------------------

class VgpuctlGc : public Vgpuctl {
 protected:
  // squeue as it is when slurmctld knows these jobs.
  void fake_squeue(const std::string &script) {
    const std::string folder = scratch_.path() + "/bin";
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/squeue") << "#!/bin/sh\n[ -z \"$SQUEUE_USERS\" ] || exit 9\n" << script << "\n";
    chmod((folder + "/squeue").c_str(), 0755);
    setenv("PATH", (folder + ":/usr/bin:/bin").c_str(), 1);
  }
  // As Slurm's daemon for a step of that job looks.
  std::unique_ptr<Program> start_step(const std::string &job) {
    const std::string script = "exec -a 'slurmstepd: [" + job + ".batch]' sleep 600";
    return std::make_unique<Program>(scratch_.path(), Words{"/bin/bash", "-c", script});
  }
  bool exists(const std::string &name) const { return std::filesystem::exists(path(name)); }
};

TEST_F(VgpuctlGc, RemovesWhatNobodyKnows) {
  prepare();
  fake_squeue("echo 100");
  std::filesystem::create_directory(path("55"));  // its prolog failed, its epilog never ran
  std::ofstream(path("55") + "/error") << "why";
  std::ofstream(path(".gpus-30")) << "0";
  std::ofstream(path(".gpus-100")) << "0";
  std::filesystem::create_directory(path(".new-0123"));
  std::ofstream(path(".new-0123") + "/limits") << "half";
  const Words now = {"gc", "--older-than", "0s"};
  const auto seven = start_step("7");
  const auto twelve = start_step("12");
  ASSERT_TRUE(eventually([] { return jobs_with_steps() == std::set<std::string>({"12", "7"}); }));

  setenv("SQUEUE_USERS", "somebody", 1);  // would hide jobs from us
  Result result = run({"gc", "--older-than=0s", "--dry-run"});
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_EQ(result.out.find("stale " + path("7") + "\n"), std::string::npos);
  EXPECT_NE(result.out.find("stale " + path("30") + "\n"), std::string::npos) << result.out;
  EXPECT_TRUE(exists("30"));

  EXPECT_EQ(run({"gc"}).out, "") << "younger than the grace";
  EXPECT_TRUE(exists("30"));

  result = run(now);
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char *gone : {"30", "55", ".gpus-30", ".new-0123"}) EXPECT_FALSE(exists(gone)) << gone;
  for (const char *kept : {"7", "12", "100", ".gpus-100", "node"}) EXPECT_TRUE(exists(kept)) << kept;
  EXPECT_EQ(run({"gc", "--older-than=0s", "--dry-run"}).status, 0);
  unsetenv("SQUEUE_USERS");
}

// Whoever runs in it can write into it that he does, for ever; its limit would stay promised.
TEST_F(VgpuctlGc, BelievesSlurmAndNotTheRegion) {
  prepare();
  fake_squeue("echo 100");
  create(55, 1, {kGiB});
  std::filesystem::resize_file(path("55") + "/usage", 100);
  const Result result = run({"gc", "--older-than=0s"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char *gone : {"7", "12", "30", "55"}) EXPECT_FALSE(exists(gone)) << gone;
  EXPECT_TRUE(exists("100"));
}

// Of a vgpu-run the lock on its region tells whether it lives.
TEST_F(VgpuctlGc, FindsWhatAKilledVgpuRunLeft) {
  const std::string parent = runtime_.path() + "/vgpu-" + std::to_string(geteuid());
  for (const char *name : {"/100-1", "/200-2", "/.new-0123", "/mine"}) {
    std::filesystem::create_directories(parent + name);
    std::ofstream(parent + name + "/usage") << "";
  }
  const ScopedFd held(open((parent + "/200-2").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  Result result = run({"gc", "--dry-run"});
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_NE(result.out.find("stale " + parent + "/100-1\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("stale " + parent + "/.new-0123\n"), std::string::npos) << result.out;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2) << result.out;
  EXPECT_TRUE(std::filesystem::exists(parent + "/100-1"));
  result = run({"gc"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("removed " + parent + "/100-1\n"), std::string::npos) << result.out;
  EXPECT_FALSE(std::filesystem::exists(parent + "/100-1"));
  EXPECT_FALSE(std::filesystem::exists(parent + "/.new-0123"));
  EXPECT_TRUE(std::filesystem::exists(parent + "/200-2"));
  EXPECT_TRUE(std::filesystem::exists(parent + "/mine"));
  EXPECT_EQ(run({"gc", "--dry-run"}).status, 0);
}

TEST_F(VgpuctlGc, RemovesNothingInDoubt) {
  prepare();
  for (const char *script : {"exit 1", "echo slurm_load_jobs error; exit 0", "kill -9 $$", "echo 30; echo x"}) {
    fake_squeue(script);
    const Result result = run({"gc", "--older-than=0s"});
    EXPECT_EQ(result.status == 0, false) << script;
    EXPECT_NE(result.err.find("nothing is removed"), std::string::npos) << result.err;
    EXPECT_TRUE(exists("30")) << script;
    EXPECT_TRUE(exists("100")) << script;
  }
  setenv("PATH", "/nowhere", 1);
  EXPECT_NE(run({"gc", "--older-than=0s"}).status, 0);
  EXPECT_TRUE(exists("30"));
  setenv("PATH", "/usr/bin:/bin", 1);
}

TEST_F(VgpuctlGc, FollowsNoLink) {
  fake_squeue("true");
  const std::string victim = scratch_.path() + "/victim";
  std::filesystem::create_directory(victim);
  std::ofstream(victim + "/limits") << "precious";
  std::filesystem::create_directory_symlink(victim, path("77"));
  std::filesystem::create_directory_symlink(victim, path(".old-77"));
  run({"gc", "--older-than=0s"});
  EXPECT_EQ(read_file(victim + "/limits"), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(path(".old-77")));
}

TEST_F(VgpuctlGc, GivesBackWhatDeadRanksHold) {
  prepare();
  fake_squeue("true");
  ranks_[1]->end(SIGKILL);
  const Result result = run({"gc"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "job 7: gave back what 1 of 1 dead processes held\n");
  EXPECT_NE(run({"list", "-nP", "-j7", "-i1", "-omem-used"}).out.find("0B"), std::string::npos);
}

}  // namespace
}  // namespace vgpu::test
