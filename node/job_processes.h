// Which job a process is of, as Slurm tracks it: by its control group, or where there is none, by the slurmstepd that it
// descends from. What a process says of itself, its environment, is asked last, and believed only against its own user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/scoped.h"

namespace vgpu::node {

// The directory of a job in Slurm's tree of control groups.
struct JobGroup {
  std::uint32_t job_id = 0;
  std::string sluid;  // in its place since Slurm 26.05

  bool empty() const { return job_id == 0 && sluid.empty(); }
};

// From the content of /proc/PID/cgroup, of version 1 or 2. Trees that users may furnish themselves do not count, and within
// Slurm's tree the outermost name does.
JobGroup parse_cgroup(std::string_view content);

// "slurmstepd: [4711.batch]": the job whose step it is; 0: no such title.
std::uint32_t job_of_title(std::string_view command_line);

// Remembers whom it has found for as long as they live.
class JobFinder {
 public:
  using Owners = std::map<std::uint32_t, uid_t>;  // of the jobs that matter

  // 0: of no job that anybody can tell.
  std::uint32_t job_of(int pid, const Owners &owners);
  void forget_dead();

 private:
  struct Known {
    ScopedFd process;
    std::uint32_t job_id;
  };

  std::uint32_t look_up(int pid, const Owners &owners);
  std::uint32_t job_of_sluid(const std::string &sluid);

  std::map<int, Known> known_;
  std::map<std::string, std::uint32_t> sluids_;
};

}  // namespace vgpu::node
