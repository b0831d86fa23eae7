#include "act.h"

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "node/audit_findings.h"
#include "node/node_name.h"
#include "node/proc_files.h"
#include "node/read_until.h"
#include "node/values.h"

extern char **environ;

namespace vgpu::watch {

namespace {

std::string describe(const Holder &holder) {
  return "process " + std::to_string(holder.pid) + " (" + node::process_name(holder.pid) + ")";
}

const char *remedy(Wrong wrong) {
  switch (wrong) {
    case Wrong::memory:
      return "; do not run programs without libvgpu, or ask for more with --gpu-mem";
    case Wrong::time:
      return "; do not run programs without libvgpu, or ask for more with --gpu-sm";
    case Wrong::uncounted:
      return "; link it dynamically, and leave LD_PRELOAD as it is";
    default:
      return "; leave the files of its region alone";
  }
}

// Slurm's own way to the job's terminal or output. False: it cannot be told that way.
bool notify(std::uint32_t job_id, const std::string &sentence) {
  constexpr unsigned kPatience_ms = 5'000;
  std::string words[] = {"scontrol", "notify", std::to_string(job_id), sentence};
  char *arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  pid_t child = -1;
  if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments, environ) != 0) return false;
  const node::Deadline deadline(kPatience_ms);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (deadline.left_ms() == 0) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    const timespec pause = {0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::vector<ScopedFd> Actor::find_guilty(const Finding &finding, std::string *pids) const {
  std::vector<ScopedFd> processes;
  for (const Holder &holder : finding.guilty) {
    // Through a descriptor, and asked once more: the number may be another process's by now.
    ScopedFd process(static_cast<int>(syscall(SYS_pidfd_open, holder.pid, 0)));
    if (!process || !collector_.is_of_job(holder.pid, finding.job_id)) continue;
    processes.push_back(std::move(process));
    *pids += (pids->empty() ? "" : ", ") + std::to_string(holder.pid);
  }
  return processes;
}

void Actor::leave(std::uint32_t job_id, const std::string &sentence) const {
  if (Error error = leave_finding(config_.directory().job(job_id), sentence)) syslog(LOG_ERR, "%s", error.text);
}

void Actor::tell_at_once(std::uint32_t job_id, const std::string &sentence) const {
  if (!notify(job_id, "vgpu: " + sentence)) leave(job_id, sentence);
}

void Actor::follow_up() {
  for (const std::uint32_t job_id : std::exchange(left_, {})) {
    for (const std::string &sentence : take_findings(config_.directory().job(job_id))) tell_at_once(job_id, sentence);
  }
}

void Actor::act(const Finding &finding) {
  std::string sentence =
      "audit: job " + std::to_string(finding.job_id) + " on " + node::node_name() + " " + finding.sentence;
  for (const Holder &holder : finding.guilty) {
    sentence += "; " + describe(holder) + " holds " + node::format_bytes(holder.bytes);
  }
  // GPU time is what NVML guesses, and books are the user's own affair: nobody is ended for either.
  const bool ends = config_.audit == node::Audit::kill && finding.wrong == Wrong::memory;
  std::string pids;
  const std::vector<ScopedFd> ended = ends ? find_guilty(finding, &pids) : std::vector<ScopedFd>();
  if (!ended.empty()) sentence += "; killed: " + pids;
  sentence += remedy(finding.wrong);
  if (!finding.is_new && ended.empty()) return;
  syslog(LOG_WARNING, "%s", sentence.c_str());
  // Who is killed may be all that the job has left, and Slurm tells nothing to a job that has ended: its last task does.
  if (finding.is_new && config_.audit == node::Audit::notify) tell_at_once(finding.job_id, sentence);
  if (finding.is_new && config_.audit != node::Audit::notify) leave(finding.job_id, sentence);
  if (finding.is_new && config_.audit == node::Audit::kill) left_.insert(finding.job_id);
  for (const ScopedFd &process : ended) syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
}

}  // namespace vgpu::watch
