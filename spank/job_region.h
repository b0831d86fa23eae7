// A job's place in the directory of regions, from its prolog over its steps to its epilog.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "node/config.h"
#include "options.h"

namespace vgpu::spank {

struct Job {
  std::uint32_t id = 0;
  uid_t uid = 0;
};

enum class Standing : std::uint8_t {
  unlimited,  // nobody asked for a limit
  limited,    // there is a region
  opted_out,
  refused,  // the user's to repair
  broken,   // the site's to repair; failing open, tasks run without limits
};

struct Outcome {
  Standing standing = Standing::unlimited;
  std::string sentence;  // of refused and broken
};

// Before the first step. What it decides holds for the whole job.
Outcome prepare_in_prolog(const node::Config &config, const Job &job, const Words &words,
                          const std::vector<unsigned> &gpus);

struct StepDemand {
  Words words;
  std::vector<unsigned> gpus;  // that the step may use; the whole job's, where no prolog has noted them
  unsigned shards = 0;
  bool heterogeneous = false;  // Slurm hands the options of the last component to all of them
};

// When a step starts: finds what the prolog made, or makes what no prolog made.
Outcome prepare_in_step(const node::Config &config, const Job &job, const StepDemand &demand);

// After the job. Whoever still runs keeps its mapping and harms nobody.
Error forget_job(const node::Config &config, std::uint32_t job_id);

// The directory for everything, on a small file system of its own; and nothing left in it by creators that were killed.
Error make_region_dir(const node::Config &config);
Error clean_region_dir(const node::Config &config);

}  // namespace vgpu::spank
