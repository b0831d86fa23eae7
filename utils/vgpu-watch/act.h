// What is done about a finding: it is said once, in the log and to the user; with audit=kill, who holds too much is ended.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/scoped.h"
#include "collect.h"
#include "judge.h"
#include "node/site_config.h"

namespace vgpu::watch {

class Actor {
 public:
  Actor(const node::SiteConfig &config, const Collector &collector) : config_(config), collector_(collector) {}

  void act(const Finding &finding);
  // Before the next findings: whom no step has told meanwhile.
  void follow_up();

 private:
  // Those that are still of the job.
  std::vector<ScopedFd> find_guilty(const Finding &finding, std::string *pids) const;
  void tell_at_once(std::uint32_t job_id, const std::string &sentence) const;
  void leave(std::uint32_t job_id, const std::string &sentence) const;

  const node::SiteConfig &config_;
  const Collector &collector_;
  std::set<std::uint32_t> left_;  // jobs with a finding for whichever of their tasks ends first
};

}  // namespace vgpu::watch
