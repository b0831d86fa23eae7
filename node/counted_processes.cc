#include "counted_processes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/scoped.h"

namespace vgpu::node {

namespace {

constexpr std::size_t kMaxProcFile = 1 << 20;

std::string proc_path(int pid, const char *file) { return "/proc/" + std::to_string(pid) + "/" + file; }

bool in_another_pid_namespace(int pid) {
  struct stat ours;
  struct stat theirs;
  return stat("/proc/self/ns/pid", &ours) == 0 && stat(proc_path(pid, "ns/pid").c_str(), &theirs) == 0 &&
         ours.st_ino != theirs.st_ino;
}

}  // namespace

Books::Books(const region::Snapshot &region) {
  for (unsigned dev = 0; dev < region.ndev(); ++dev) uuids_.insert(region.device(dev).identity.uuid);
  for (unsigned i = 0; i < region.ranks(); ++i) {
    const region::RankSnapshot &rank = region.rank(i);
    pids_.insert(static_cast<int>(rank.owner.pid));
    if (rank.info_valid) pids_.insert(static_cast<int>(rank.info.host_pid));
    if (!rank.info_valid || rank.info.host_pid == 0) all_numbers_known_ = false;
  }
}

bool Books::may_count_by_another_number(int pid) const { return !all_numbers_known_ && in_another_pid_namespace(pid); }

std::string read_proc(int pid, const char *file) {
  std::string content;
  const ScopedFd fd(open(proc_path(pid, file).c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[4096];
  for (ssize_t length; fd && (length = read(fd.get(), buffer, sizeof buffer)) > 0 && content.size() < kMaxProcFile;) {
    content.append(buffer, static_cast<std::size_t>(length));
  }
  return content;
}

std::string process_name(int pid) {
  std::string name = read_proc(pid, "comm");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

}  // namespace vgpu::node
