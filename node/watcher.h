// vgpu-watch, the one process of a node that compares what jobs hold with what they may: whether it runs, how slurmd
// starts it, and how only one of them does.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/scoped.h"
#include "directory.h"
#include "site_config.h"

namespace vgpu::node {

// What steps and `vgpuctl check` say where it does not.
inline constexpr char kNoWatcher[] =
    "vgpu-watch does not run on this node, so nobody audits its jobs; restart slurmd, or start vgpu-watch.service";

// For root, to whom the lock can be seen.
bool watcher_runs(const RegionDirectory &directory);

// Detached from the caller, with the keys of plugstack.conf; not where systemd has a unit for it. An error: it cannot run.
Error start_watcher(const SiteConfig &config, const std::vector<std::string> &keys);

// Held by the one that watches.
class WatchLock {
 public:
  // Ends a watcher that was told something else, or is of another version: who was started last knows best.
  // Fault::exists: another one does the same already.
  Error take(const RegionDirectory &directory, const std::string &told);
  // False: the directory of regions is another one by now, and so is the lock.
  bool is_still_there() const;

 private:
  std::string path_;
  ScopedFd file_;
  FileLock lock_;
};

}  // namespace vgpu::node
