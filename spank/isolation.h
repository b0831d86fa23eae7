// preload=ldso: a task in a mount namespace of its own, where the library is preloaded and the region is found by files
// that only root can change. Unsetting or editing variables then changes nothing.
#pragma once

#include <string>

#include "base/error.h"
#include "base/scoped.h"
#include "node/site_config.h"

namespace vgpu::spank {

// As root, while a step starts: the file that will lie over /etc/ld.so.preload in its tasks.
Error prepare_isolation(const node::SiteConfig &config);
// As root, in the task itself, which must have one thread.
Error isolate_task(const node::SiteConfig &config, std::uint32_t job_id);

// slurmstepd runs task epilogs, the user's and the site's, from a thread of its own and as the user: that thread is put where
// the tasks are, and taken back for what the plugin does as root. Slurm's other threads stay where they were.
class IsolatedThread {
 public:
  Error enter(const node::SiteConfig &config, std::uint32_t job_id);
  void leave() { go_to(outside_); }
  void enter_again() { go_to(inside_); }

 private:
  static void go_to(const ScopedFd &mount_namespace);

  ScopedFd outside_;
  ScopedFd inside_;
};

}  // namespace vgpu::spank
