#include "audit.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/scoped.h"
#include "log.h"
#include "node/counted_processes.h"
#include "node/job_processes.h"
#include "node/node_name.h"
#include "node/proc_files.h"
#include "node/processes.h"
#include "node/settle.h"
#include "node/values.h"
#include "region/region.h"

namespace vgpu::spank {

namespace {

constexpr unsigned kDeadline_ms = 5'000;

bool belongs_to(int pid, const Job &job) { return node::JobFinder().job_of(pid, {{job.id, job.uid}}) == job.id; }

// Through a descriptor, and asked once more: the number may be another process's by now.
bool end_process(int pid, const Job &job) {
  const ScopedFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process || !belongs_to(pid, job)) return false;
  return syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
}

// Counted, but not as much as it holds: the limit is not kept. Nothing to kill anybody for.
void log_if_too_little(const region::Snapshot &region, const node::CountedProcesses &counted,
                       const node::GpuProcess &process, const Job &job) {
  if (!counted.contains(process.pid) || !counted.covers_gpu(process.uuid)) return;
  const std::uint64_t bytes = node::counted_memory(region, process.pid, process.uuid);
  if (process.bytes <= bytes + node::kCountTolerance) return;
  log_info("audit of job %u: process %d holds %s of GPU %s, of which only %s are counted", job.id, process.pid,
           node::format_bytes(process.bytes).c_str(), process.uuid.c_str(), node::format_bytes(bytes).c_str());
}

}  // namespace

bool audit_job(const node::SiteConfig &config, const Job &job) {
  if (config.audit == node::Audit::off) return true;
  // First NVML, then the region: a rank that starts in between is only in the region, and harms nobody.
  std::vector<node::GpuProcess> processes;
  const node::ProbeOptions options = {config.probe, config.nvml, "", kDeadline_ms};
  if (Error error = list_gpu_processes(options, &processes)) {
    log_info("audit of job %u: %s", job.id, error.text);
    return false;
  }
  region::Snapshot region;
  if (Error error = region::Snapshot::read(config.directory().job(job.id).path().c_str(), region::Trust::root,
                                           region::Detail::memory, &region)) {
    log_info("audit of job %u: %s", job.id, error.text);
    return false;
  }
  // Tasks end one after the other: what the last audit saw shows who did nothing since.
  static region::Snapshot last;
  if (last.ndev() > 0) {
    const unsigned settled = settle_contexts(config.directory().job(job.id).path(), last, region, processes);
    if (settled > 0) log_debug("audit of job %u: the contexts of %u ranks were settled", job.id, settled);
  }
  (void)region::Snapshot::read(config.directory().job(job.id).path().c_str(), region::Trust::root,
                               region::Detail::memory, &last);
  const node::CountedProcesses counted(region);
  log_debug("audit of job %u: %zu processes hold GPU memory on this node", job.id, processes.size());
  for (const node::GpuProcess &process : processes) {
    log_if_too_little(region, counted, process, job);
    if (counted.contains(process.pid) || !counted.covers_gpu(process.uuid) || !belongs_to(process.pid, job)) continue;
    const std::string name = node::process_name(process.pid);
    if (counted.may_contain_by_other_pid(process.pid)) {
      log_info("audit of job %u: process %d (%s) may be one of its ranks in a PID namespace", job.id, process.pid,
               name.c_str());
      continue;
    }
    const bool killed = config.audit == node::Audit::kill && end_process(process.pid, job);
    log_error("audit: process %d (%s) of job %u on %s holds %s of GPU %s that nobody counts: it runs without libvgpu%s",
              process.pid, name.c_str(), job.id, node::node_name().c_str(), node::format_bytes(process.bytes).c_str(),
              process.uuid.c_str(), killed ? "; it was killed" : "");
  }
  return true;
}

}  // namespace vgpu::spank
