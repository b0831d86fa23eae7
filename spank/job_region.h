// A job's place in the directory of regions, from its prolog over its steps to its epilog.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "node/site_config.h"
#include "options.h"

namespace vgpu::spank {

struct Job {
  std::uint32_t id = 0;
  uid_t uid = 0;
};

enum class JobState : std::uint8_t {
  unlimited,  // nobody asked for a limit
  limited,    // there is a region
  opted_out,
  refused,  // the user's to repair
  broken,   // the site's to repair; failing open, tasks run without limits
};

const char *name_of(JobState state);

// What was decided for a job on this node.
struct Decision {
  JobState state = JobState::unlimited;
  std::string reason;  // of refused and broken, in a sentence
};

// Before the first step. What it decides holds for the whole job.
Decision prepare_in_prolog(const node::SiteConfig &config, const Job &job, const RawOptions &options,
                           const std::vector<unsigned> &gpus);

// What Slurm says of a step.
struct StepInfo {
  RawOptions options;
  std::vector<unsigned> gpus;  // that the step may use; the whole job's, where no prolog has noted them
  unsigned shards = 0;
  bool heterogeneous = false;  // Slurm hands the options of the last component to all of them
};

// When a step starts: finds what the prolog made, or makes what no prolog made.
Decision prepare_in_step(const node::SiteConfig &config, const Job &job, const StepInfo &step);

}  // namespace vgpu::spank
