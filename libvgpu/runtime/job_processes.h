// Which of the processes that NVML names are ranks of this job: those that live in the region.
//
// NVML speaks of processes by the host's numbers, which we know of ranks outside PID namespaces and of those that found
// theirs (host_pid.h). Newer drivers instead use the numbers of the namespace that asks, and name nobody outside it: then
// every process that is named exists here, and ranks are known by the numbers they have here.
#pragma once

#include "region/region.h"

namespace vgpu::runtime {

class JobProcesses {
 public:
  JobProcesses() : JobProcesses(region::identify_self()) {}

  // First every process of a list, so that it is known whose numbers these are. Another list, of another call, may be in
  // other numbers.
  void begin_list() { numbers_are_ours_ = in_namespace_; }
  void see(unsigned pid);
  bool has(unsigned pid);

  // The ranks, each with the number by which NVML would name it; 0: unknown.
  unsigned count() const { return count_; }
  unsigned slot(unsigned index) const { return members_[index].slot; }
  unsigned pid(unsigned index) const {
    const Member &member = members_[index];
    return member.host_pid == 0 && numbers_are_ours_ ? member.pid_here : member.host_pid;
  }
  // How many of those that live and have contexts on a device NVML names by numbers that nobody knows.
  unsigned unnamed_on(unsigned dev);

 private:
  explicit JobProcesses(const region::SelfIdentity &self);

  struct Member {
    std::uint64_t owner;
    unsigned slot;
    unsigned host_pid;  // 0: unknown
    unsigned pid_here;  // 0: it is in another namespace
  };

  region::LivenessCheck liveness_;
  Member members_[region::kSlots];
  unsigned count_ = 0;
  unsigned self_;
  bool in_namespace_;
  bool numbers_are_ours_;
};

}  // namespace vgpu::runtime
