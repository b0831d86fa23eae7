// Looks at the node: which jobs have limits, what NVML shows of their processes, what their books say.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "node/job_processes.h"
#include "node/probe.h"
#include "node/processes.h"
#include "node/region_limits.h"
#include "node/site_config.h"
#include "region/region.h"
#include "sample.h"

namespace vgpu::watch {

class Collector {
 public:
  explicit Collector(const node::SiteConfig &config);

  // Everything that can be had. An error: NVML did not answer, or the directory cannot be read.
  Error collect(Sample *sample);
  // As it is now, whatever was found before.
  bool is_of_job(int pid, std::uint32_t job_id) const;

 private:
  // The last two looks at a region, for what needs two of them.
  struct Looks {
    std::uint64_t created = 0;
    std::unique_ptr<region::Snapshot> earlier, now;
    std::map<std::string, std::uint64_t> former_limits;  // until the judge has seen them
  };

  Error ask_nvml();
  void find_jobs(const std::vector<node::RegionLimits> &regions, Sample *sample);
  void add_books(JobSeen *seen, Looks *looks);
  void add_holders(Sample *sample);

  node::SiteConfig config_;
  node::RegionDirectory directory_;
  node::ProbeServer probe_;
  node::JobFinder finder_;
  node::JobFinder::Owners owners_;
  std::vector<node::GpuProcess> processes_;
  node::MemoryInUse in_use_;
  std::map<std::string, Looks> looks_;
  unsigned samples_ = 0;
  unsigned pause_ = 0;  // samples until NVML is asked again after it failed
  unsigned failures_ = 0;
};

}  // namespace vgpu::watch
