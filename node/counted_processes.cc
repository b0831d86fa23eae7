#include "counted_processes.h"

#include <sys/stat.h>

namespace vgpu::node {

bool is_in_another_pid_namespace(int pid) {
  struct stat ours;
  struct stat theirs;
  return stat("/proc/self/ns/pid", &ours) == 0 &&
         stat(("/proc/" + std::to_string(pid) + "/ns/pid").c_str(), &theirs) == 0 && ours.st_ino != theirs.st_ino;
}

std::uint64_t counted_memory(const region::Snapshot &region, int pid, const std::string &uuid) {
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < region.ranks(); ++i) {
    const region::RankSnapshot &rank = region.rank(i);
    if (static_cast<int>(rank.owner.pid) != pid && !(rank.info_valid && static_cast<int>(rank.info.host_pid) == pid))
      continue;
    for (unsigned dev = 0; dev < region.ndev(); ++dev) {
      if (uuid != region.device(dev).identity.uuid) continue;
      for (unsigned kind = 0; kind < region::kKinds; ++kind)
        bytes += region.memory(i, dev, static_cast<region::Kind>(kind));
    }
  }
  return bytes;
}

CountedProcesses::CountedProcesses(const region::Snapshot &region) {
  for (unsigned dev = 0; dev < region.ndev(); ++dev) uuids_.insert(region.device(dev).identity.uuid);
  for (unsigned i = 0; i < region.ranks(); ++i) {
    const region::RankSnapshot &rank = region.rank(i);
    pids_.insert(static_cast<int>(rank.owner.pid));
    if (rank.info_valid) pids_.insert(static_cast<int>(rank.info.host_pid));
    if (!rank.info_valid || rank.info.host_pid == 0) all_host_pids_known_ = false;
  }
}

bool CountedProcesses::may_contain_by_other_pid(int pid) const {
  return !all_host_pids_known_ && is_in_another_pid_namespace(pid);
}

}  // namespace vgpu::node
