#include "act.h"

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/scoped.h"
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

std::string Actor::end_guilty(const Finding &finding) const {
  std::string ended;
  for (const Holder &holder : finding.guilty) {
    // Through a descriptor, and asked once more: the number may be another process's by now.
    const ScopedFd process(static_cast<int>(syscall(SYS_pidfd_open, holder.pid, 0)));
    if (!process || !collector_.is_of_job(holder.pid, finding.job_id)) continue;
    if (syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0) continue;
    ended += (ended.empty() ? "" : ", ") + std::to_string(holder.pid);
  }
  return ended;
}

void Actor::tell_user(std::uint32_t job_id, const std::string &sentence) const {
  const bool at_once = config_.audit == node::Audit::notify || config_.audit == node::Audit::kill;
  if (at_once && notify(job_id, "vgpu: " + sentence)) return;
  if (Error error = leave_finding(config_.directory().job(job_id), sentence)) syslog(LOG_ERR, "%s", error.text);
}

void Actor::act(const Finding &finding) const {
  std::string sentence =
      "audit: job " + std::to_string(finding.job_id) + " on " + node::node_name() + " " + finding.sentence;
  for (const Holder &holder : finding.guilty) {
    sentence += "; " + describe(holder) + " holds " + node::format_bytes(holder.bytes);
  }
  // GPU time is what NVML guesses, and books are the user's own affair: nobody is ended for either.
  const bool ends = config_.audit == node::Audit::kill && finding.wrong == Wrong::memory;
  const std::string ended = ends ? end_guilty(finding) : "";
  if (!ended.empty()) sentence += "; killed: " + ended;
  sentence += remedy(finding.wrong);
  if (!finding.is_new && ended.empty()) return;
  syslog(LOG_WARNING, "%s", sentence.c_str());
  if (finding.is_new) tell_user(finding.job_id, sentence);
}

}  // namespace vgpu::watch
