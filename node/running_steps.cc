#include "running_steps.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>

#include "directory.h"
#include "proc_files.h"

namespace vgpu::node {

namespace {

constexpr char kTitle[] = "slurmstepd: [";  // then JOB.STEP]

// The real user too: a setuid program keeps the words of whoever started it.
bool is_roots(int pid) {
  const std::string status = read_proc_file(pid, "status");
  return status.find("\nUid:\t0\t0\t") != status.npos;
}

// Nodes that share a machine have PID namespaces of their own, and jobs of the same ids.
std::string pid_namespace(const char *process) {
  char target[64];
  const ssize_t length = readlink(("/proc/" + std::string(process) + "/ns/pid").c_str(), target, sizeof target);
  return length < 0 ? "" : std::string(target, static_cast<std::size_t>(length));
}

}  // namespace

std::set<std::string> jobs_with_steps() {
  std::set<std::string> jobs;
  const std::string here = pid_namespace("self");
  const ScopedDirectory processes(opendir("/proc"));
  while (const dirent *entry = processes ? readdir(processes.get()) : nullptr) {
    if (!is_job_id(entry->d_name)) continue;  // digits
    const int pid = std::atoi(entry->d_name);
    const std::string title = read_proc_file(pid, "cmdline");
    if (!title.starts_with(kTitle)) continue;
    const std::size_t start = sizeof kTitle - 1;
    const std::string job = title.substr(start, title.find('.', start) - start);
    if (is_job_id(job) && is_roots(pid) && pid_namespace(entry->d_name) == here) jobs.insert(job);
  }
  return jobs;
}

}  // namespace vgpu::node
