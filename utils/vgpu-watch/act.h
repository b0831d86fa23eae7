// What is done about a finding: it is said once, in the log and to the user; with audit=kill, who holds too much is ended.
#pragma once

#include <string>

#include "collect.h"
#include "judge.h"
#include "node/site_config.h"

namespace vgpu::watch {

class Actor {
 public:
  Actor(const node::SiteConfig &config, const Collector &collector) : config_(config), collector_(collector) {}

  void act(const Finding &finding) const;

 private:
  // Whom, in words; empty: nobody.
  std::string end_guilty(const Finding &finding) const;
  void tell_user(std::uint32_t job_id, const std::string &sentence) const;

  const node::SiteConfig &config_;
  const Collector &collector_;
};

}  // namespace vgpu::watch
