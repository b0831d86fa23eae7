// Which processes a region counts, and whether one that holds GPU memory is among them.
#pragma once

#include <set>
#include <string>

#include "region/region.h"

namespace vgpu::node {

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
