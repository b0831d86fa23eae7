// Which job a process is of, by what Slurm says and not by what it says itself.
#include "node/job_processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace vgpu::node {
namespace {

TEST(JobProcesses, CgroupsOfBothVersionsNameTheJob) {
  const struct {
    const char *content;
    std::uint32_t job_id;
    const char *sluid;
  } cases[] = {
      {"", 0, ""},
      {"0::/\n", 0, ""},
      {"0::/system.slice/sshd.service\n", 0, ""},
      {"0::/system.slice/slurmd.service\n", 0, ""},
      {"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", 4711, ""},
      {"0::/system.slice/slurmstepd.scope/job_4711/step_extern/user/task_special\n", 4711, ""},
      {"0::/system.slice/slurmstepd.scope/job_4711", 4711, ""},
      {"0::/system.slice/n1_slurmstepd.scope/job_5/step_batch/slurm\n", 5, ""},
      {"12:cpu:/\n11:devices:/slurm/uid_1000/job_42/step_0/task_0\n0::/\n", 42, ""},
      {"11:freezer:/slurm_n1/uid_0/job_42/step_0\n", 42, ""},
      {"4:memory:/container/slurm/uid_1000/job_42/step_0\n", 42, ""},
      {"0::/system.slice/slurmstepd.scope/s0ABCDEFGHJKMN/step_0/user\n", 0, "s0ABCDEFGHJKMN"},
      // What a user makes within the job's own group.
      {"0::/system.slice/slurmstepd.scope/job_1/step_0/user/task_0/slurmstepd.scope/job_2/step_0\n", 1, ""},
      // ... or in a tree of their own.
      {"0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_2/step_0\n", 0, ""},
      {"0::/user.slice/uid_1000/job_2/step_0\n", 0, ""},
      // Not where Slurm has its jobs, and not numbers.
      {"0::/job_7/step_0\n", 0, ""},
      {"0::/system.slice/slurmstepd.scope/system\n", 0, ""},
      {"0::/system.slice/slurmstepd.scope/job_/step_0\n", 0, ""},
      {"0::/system.slice/slurmstepd.scope/job_7x/step_0\n", 0, ""},
      {"0::/system.slice/slurmstepd.scope/job_99999999999/step_0\n", 0, ""},
      {"0::/system.slice/slurmstepd.scope/s0ABCDEFGHJKM/step_0\n", 0, ""},
      {"0::/system.slice/slurmstepd.scope/s0ABCDEFGHJ\033MN/step_0\n", 0, ""},
      {"nonsense", 0, ""},
  };
  for (const auto &one : cases) {
    const JobGroup group = parse_cgroup(one.content);
    EXPECT_EQ(group.job_id, one.job_id) << one.content;
    EXPECT_EQ(group.sluid, one.sluid) << one.content;
  }
}

TEST(JobProcesses, TitlesOfStepDaemonsNameTheJob) {
  EXPECT_EQ(job_of_title("slurmstepd: [4711.0]"), 4711u);
  EXPECT_EQ(job_of_title("slurmstepd: [4711.batch]"), 4711u);
  EXPECT_EQ(job_of_title("slurmstepd: [4711+1.extern]"), 4711u);
  for (const char *other : {"", "slurmstepd", "slurmstepd: [", "slurmstepd: [x.0]", "bash slurmstepd: [7.0]"}) {
    EXPECT_EQ(job_of_title(other), 0u) << other;
  }
}

// Only where this test itself is in no job of Slurm's.
TEST(JobProcesses, AnEnvironmentIsBelievedAgainstItsOwnUserAlone) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ready[0]);
    dup2(ready[1], STDOUT_FILENO);
    const char *environment[] = {"SLURM_JOB_ID=4711", nullptr};
    execle("/bin/sh", "sh", "-c", "echo; exec sleep 60", nullptr, environment);
    _exit(99);
  }
  close(ready[1]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  if (JobFinder().job_of(getpid(), {}) == 0) {
    EXPECT_EQ(JobFinder().job_of(child, {{4711, getuid()}}), 4711u);
    EXPECT_EQ(JobFinder().job_of(child, {{4711, getuid() + 1}}), 0u) << "somebody else's job";
    EXPECT_EQ(JobFinder().job_of(child, {{4712, getuid()}}), 0u);
  }
  JobFinder finder;
  EXPECT_EQ(finder.job_of(getpid(), {{4711, getuid()}}), 0u);
  finder.job_of(child, {{4711, getuid()}});
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(finder.job_of(child, {{4711, getuid()}}), 0u) << "it has ended";
  close(ready[0]);
}

}  // namespace
}  // namespace vgpu::node
