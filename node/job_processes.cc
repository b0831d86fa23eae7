#include "job_processes.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <limits>

#include "directory.h"
#include "proc_files.h"

namespace vgpu::node {

namespace {

constexpr uid_t kNobodyKnows = std::numeric_limits<uid_t>::max();

// All of `text` behind `prefix`; 0: it is something else.
std::uint32_t number_behind(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return 0;
  text.remove_prefix(prefix.size());
  std::uint32_t number = 0;
  const auto [end, trouble] = std::from_chars(text.data(), text.data() + text.size(), number);
  return trouble == std::errc() && end == text.data() + text.size() ? number : 0;
}

bool is_sluid(std::string_view name) {
  return name.size() == 14 && name[0] == 's' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

// Version 1: /slurm/uid_1000/job_7/step_0; version 2: /system.slice/slurmstepd.scope/job_7/step_0.
bool holds_jobs(std::string_view folder) {
  return folder.ends_with("slurmstepd.scope") || folder == "uid_0" || number_behind(folder, "uid_") != 0;
}

JobGroup parse_path(std::string_view path) {
  bool jobs_are_next = false;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view folder = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (folder == "user.slice") return {};
    if (jobs_are_next) {
      if (const std::uint32_t job_id = number_behind(folder, "job_"); job_id != 0) return {job_id, ""};
      if (is_sluid(folder)) return {0, std::string(folder)};
    }
    jobs_are_next = holds_jobs(folder);
  }
  return {};
}

int parent_of(int pid) {
  const std::string stat = read_proc_file(pid, "stat");
  const std::size_t name_end = stat.rfind(')');
  int parent = 0;
  if (name_end == stat.npos || std::sscanf(stat.c_str() + name_end + 1, " %*c %d", &parent) != 1) return 0;
  return parent;
}

// The real one. The owner of /proc/PID is root's for whoever asked not to be looked at.
uid_t user_of(int pid) {
  const std::string status = read_proc_file(pid, "status");
  const std::size_t at = status.find("\nUid:\t");
  uid_t uid = kNobodyKnows;
  if (at != status.npos) std::sscanf(status.c_str() + at, " Uid: %u", &uid);
  return uid;
}

std::uint32_t job_of_stepd(int pid) {
  if (process_name(pid) != "slurmstepd" || user_of(pid) != 0) return 0;
  return job_of_title(read_proc_file(pid, "cmdline"));
}

std::uint32_t job_of_ancestor(int pid) {
  constexpr int kDeepest = 256;
  for (int depth = 0; pid > 1 && depth < kDeepest; ++depth, pid = parent_of(pid)) {
    if (const std::uint32_t job_id = job_of_stepd(pid); job_id != 0) return job_id;
  }
  return 0;
}

std::uint32_t job_of_environment(int pid) {
  // '\0' in front: the variable itself, not the end of another one's name.
  const std::string environment = '\0' + read_proc_file(pid, "environ");
  constexpr std::string_view kName("\0SLURM_JOB_ID=", 14);
  const std::size_t at = environment.find(kName);
  return at == environment.npos ? 0 : number_behind(environment.c_str() + at + kName.size(), "");
}

bool has_ended(const ScopedFd &process) {
  pollfd ended = {process.get(), POLLIN, 0};
  return poll(&ended, 1, 0) != 0;
}

}  // namespace

JobGroup parse_cgroup(std::string_view content) {
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    const std::size_t slash = line.find('/');  // behind "4:memory:"
    if (slash == line.npos) continue;
    if (JobGroup found = parse_path(line.substr(slash + 1)); !found.empty()) return found;
  }
  return {};
}

std::uint32_t job_of_title(std::string_view command_line) {
  constexpr std::string_view kBefore = "slurmstepd: [";
  if (!command_line.starts_with(kBefore)) return 0;
  command_line.remove_prefix(kBefore.size());
  return number_behind(command_line.substr(0, command_line.find_first_not_of("0123456789")), "");
}

std::uint32_t JobFinder::job_of_sluid(const std::string &sluid) {
  if (const auto known = sluids_.find(sluid); known != sluids_.end()) return known->second;
  // Its steps' daemons are in the same directory, and say the number.
  const ScopedDirectory all(opendir("/proc"));
  while (const dirent *entry = all ? readdir(all.get()) : nullptr) {
    const std::uint32_t pid = number_behind(entry->d_name, "");
    if (pid == 0) continue;
    const std::uint32_t job_id = job_of_stepd(static_cast<int>(pid));
    if (job_id == 0 || parse_cgroup(read_proc_file(static_cast<int>(pid), "cgroup")).sluid != sluid) continue;
    sluids_[sluid] = job_id;
    return job_id;
  }
  return 0;
}

std::uint32_t JobFinder::look_up(int pid, const Owners &owners) {
  const JobGroup group = parse_cgroup(read_proc_file(pid, "cgroup"));
  if (group.job_id != 0) return group.job_id;
  if (!group.sluid.empty()) {
    if (const std::uint32_t job_id = job_of_sluid(group.sluid); job_id != 0) return job_id;
  }
  if (const std::uint32_t job_id = job_of_ancestor(pid); job_id != 0) return job_id;
  const auto claimed = owners.find(job_of_environment(pid));
  return claimed != owners.end() && user_of(pid) == claimed->second ? claimed->first : 0;
}

std::uint32_t JobFinder::job_of(int pid, const Owners &owners) {
  const auto known = known_.find(pid);
  if (known != known_.end()) {
    if (!has_ended(known->second.process)) return known->second.job_id;
    known_.erase(known);
  }
  // Held from before the look: whoever has the number afterwards is the one that was looked at.
  ScopedFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return 0;
  const std::uint32_t job_id = look_up(pid, owners);
  if (job_id == 0 || has_ended(process)) return 0;
  known_.emplace(pid, Known{std::move(process), job_id});
  return job_id;
}

void JobFinder::forget_dead() {
  std::erase_if(known_, [](const auto &entry) { return has_ended(entry.second.process); });
}

}  // namespace vgpu::node
