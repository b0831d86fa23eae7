// Whether a process that holds GPU memory is in the books of a region.
#pragma once

#include <set>
#include <string>

#include "region/region.h"

namespace vgpu::node {

class Books {
 public:
  explicit Books(const region::Snapshot &region);

  // Whether the region says anything about that GPU.
  bool are_of(const std::string &uuid) const { return uuids_.contains(uuid); }
  // By the number that the node knows it by.
  bool counts(int pid) const { return pids_.contains(pid); }
  // A rank in a PID namespace does not always find out what the node calls it.
  bool may_count_by_another_number(int pid) const;

 private:
  std::set<std::string> uuids_;
  std::set<int> pids_;
  bool all_numbers_known_ = true;
};

}  // namespace vgpu::node
