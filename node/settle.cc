#include "settle.h"

#include <sys/stat.h>

#include "counted_processes.h"

namespace vgpu::node {

namespace {

// Without a number of the node's a rank has the same one there, or nobody knows it: then it is in another PID namespace,
// and its own number may be anybody's.
int pid_of(const region::Snapshot &region, const region::RankSnapshot &rank) {
  if (!rank.info_valid) return 0;
  if (rank.info.host_pid != 0) return static_cast<int>(rank.info.host_pid);
  const auto pid = static_cast<int>(rank.owner.pid);
  struct stat status;
  if (stat(("/proc/" + std::to_string(pid)).c_str(), &status) != 0 || status.st_uid != region.job().uid) return 0;
  return is_in_another_pid_namespace(pid) ? 0 : pid;
}

std::uint64_t bytes_of(const std::vector<GpuProcess> &processes, const char *uuid, int pid) {
  for (const GpuProcess &process : processes) {
    if (process.pid == pid && process.uuid == uuid) return process.bytes;
  }
  return 0;
}

bool was_the_same(const region::Snapshot &earlier, const region::RankSnapshot &rank, unsigned dev,
                  const region::RestMark &mark) {
  for (unsigned i = 0; i < earlier.ranks(); ++i) {
    if (earlier.rank(i).slot == rank.slot) return earlier.mark(i, dev) == mark;
  }
  return false;
}

}  // namespace

unsigned settle_contexts(const std::string &path, const region::Snapshot &earlier, const region::Snapshot &now,
                         const std::vector<GpuProcess> &processes) {
  if (now.taken_ns() < earlier.taken_ns() + std::uint64_t{kRest_ms} * 1'000'000 || now.ndev() != earlier.ndev())
    return 0;
  unsigned settled = 0;
  for (unsigned dev = 0; dev < now.ndev(); ++dev) {
    std::vector<region::SeenRank> seen;
    for (unsigned i = 0; i < now.ranks(); ++i) {
      const region::RankSnapshot &rank = now.rank(i);
      const region::RestMark &mark = now.mark(i, dev);
      if (rank.verdict != region::Verdict::alive || !was_the_same(earlier, rank, dev, mark)) continue;
      const int pid = pid_of(now, rank);
      const std::uint64_t bytes = pid == 0 ? 0 : bytes_of(processes, now.device(dev).identity.uuid, pid);
      if (bytes != 0) seen.push_back({rank.slot, bytes, mark});  // 0: NVML does not know
    }
    unsigned corrected = 0;
    if (seen.empty() || region::settle_region(path.c_str(), region::Trust::root, dev, seen.data(),
                                              static_cast<unsigned>(seen.size()), &corrected)) {
      continue;
    }
    settled += corrected;
  }
  return settled;
}

}  // namespace vgpu::node
