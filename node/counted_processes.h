// Which processes a region counts, and whether one that holds GPU memory is among them.
#pragma once

#include <set>
#include <string>

#include "region/region.h"

namespace vgpu::node {

// Than the caller.
bool is_in_another_pid_namespace(int pid);

// What the region counts for that process of the node on that GPU, of every kind.
std::uint64_t counted_memory(const region::Snapshot &region, int pid, const std::string &uuid);
// How much more NVML may show: what changes from moment to moment, and other ways of rounding.
inline constexpr std::uint64_t kCountTolerance = 32 << 20;

class CountedProcesses {
 public:
  explicit CountedProcesses(const region::Snapshot &region);

  // Whether the region limits that GPU.
  bool covers_gpu(const std::string &uuid) const { return uuids_.contains(uuid); }
  // `pid`: as the node knows it.
  bool contains(int pid) const { return pids_.contains(pid); }
  // A rank in a PID namespace does not always find out its PID on the node. True: `pid` may be such a rank.
  bool may_contain_by_other_pid(int pid) const;

 private:
  std::set<std::string> uuids_;
  std::set<int> pids_;
  bool all_host_pids_known_ = true;
};

}  // namespace vgpu::node
