#include "ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "base/scoped.h"
#include "node/print_error.h"
#include "status.h"

namespace vgpu::run {

namespace {

constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

sigset_t forwarded_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kForwarded) sigaddset(&set, number);
  return set;
}

sigset_t awaited_signals() {
  sigset_t set = forwarded_signals();
  sigaddset(&set, SIGCHLD);
  return set;
}

class Ranks {
 public:
  explicit Ranks(const CallersSignals &signals) : signals_(signals) {}
  ~Ranks() {
    signal_all(SIGKILL);
    while (!running_.empty()) reap(0);
  }

  // The first error of any rank's exec, 0 if all run. Or -1, if there could not be so many processes.
  int start(unsigned ranks, const std::vector<std::string> &command) {
    // Closed by exec: what comes out is the errno of those that could not.
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    const ScopedFd troubles(ends[0]);
    {
      const ScopedFd report(ends[1]);
      std::vector<char *> arguments;
      for (const std::string &word : command) arguments.push_back(const_cast<char *>(word.c_str()));
      arguments.push_back(nullptr);
      const pid_t self = getpid();
      for (unsigned rank = 0; rank < ranks; ++rank) {
        const pid_t child = fork();
        if (child < 0) return -1;
        if (child == 0) {
          number_rank(rank, ranks);
          become_rank(self, arguments.data(), report.get());
        }
        running_.emplace(child, rank);
      }
    }
    int reason = 0;
    ssize_t length;
    do {
      length = read(troubles.get(), &reason, sizeof reason);
    } while (length < 0 && errno == EINTR);
    return length == sizeof reason ? reason : 0;
  }

  int wait() {
    forward_early();
    const sigset_t awaited = awaited_signals();
    while (!running_.empty()) {
      siginfo_t info;
      if (sigwaitinfo(&awaited, &info) < 0) continue;
      if (info.si_signo == SIGCHLD) {
        while (reap(WNOHANG)) continue;
        continue;
      }
      expected_.insert(info.si_signo);
      // The terminal has sent its own to every process of the group.
      if (info.si_code != SI_KERNEL) signal_all(info.si_signo);
    }
    return worst_;
  }

  // Who ended by a signal that did not come by way of us: killed for want of host memory, crashed, ended by a neighbour.
  std::vector<std::string> describe_deaths() const {
    constexpr std::size_t kNamed = 8;
    std::vector<std::string> lines;
    std::size_t more = 0;
    for (const auto &[rank, death] : deaths_) {
      if (expected_.contains(death.signal)) continue;
      if (lines.size() == kNamed) {
        ++more;
        continue;
      }
      lines.push_back("rank " + std::to_string(rank) + " (pid " + std::to_string(death.pid) + ") was ended by signal " +
                      std::to_string(death.signal) + " (" + strsignal(death.signal) + ")");
    }
    if (more > 0) lines.push_back("and " + std::to_string(more) + " more ranks were ended by signals");
    return lines;
  }

 private:
  static void number_rank(unsigned rank, unsigned ranks) {
    setenv("VGPU_RANK", std::to_string(rank).c_str(), 1);
    setenv("VGPU_SIZE", std::to_string(ranks).c_str(), 1);
  }

  [[noreturn]] void become_rank(pid_t launcher, char **arguments, int report) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(kCannotStart);  // it was killed before we asked to die with it
    sigaction(SIGPIPE, &signals_.pipe, nullptr);
    sigprocmask(SIG_SETMASK, &signals_.mask, nullptr);
    execvp(arguments[0], arguments);
    const int reason = errno;
    const bool told = write(report, &reason, sizeof reason) == sizeof reason;
    _exit(told && reason == ENOENT ? kNotFound : kCannotStart);
  }

  // Signals that came while the ranks were being started reached some of them at most: now all get them.
  void forward_early() {
    const sigset_t forwarded = forwarded_signals();
    const timespec at_once = {};
    for (int number; (number = sigtimedwait(&forwarded, nullptr, &at_once)) > 0;) {
      expected_.insert(number);
      signal_all(number);
    }
  }

  // False when there is nothing to reap now.
  bool reap(int options) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, options);
    if (child < 0 && errno == ECHILD) running_.clear();
    if (child <= 0) return child < 0 && errno == EINTR;
    const auto found = running_.find(child);
    if (found == running_.end()) return true;
    if (WIFSIGNALED(status)) deaths_[found->second] = {child, WTERMSIG(status)};
    worst_ = std::max(worst_, rank_status(status));
    running_.erase(found);
    return true;
  }

  void signal_all(int number) const {
    for (const auto &[child, rank] : running_) kill(child, number);
  }

  struct Death {
    pid_t pid;
    int signal;
  };

  const CallersSignals &signals_;
  std::map<pid_t, unsigned> running_;  // ranks that are not reaped yet, so that their PIDs are theirs
  std::map<unsigned, Death> deaths_;   // by rank
  std::set<int> expected_;             // signals that all ranks got, from us or from the terminal
  int worst_ = 0;
};

}  // namespace

CallersSignals hold_signals() {
  CallersSignals old;
  const sigset_t awaited = awaited_signals();
  sigprocmask(SIG_BLOCK, &awaited, &old.mask);
  signal(SIGCHLD, SIG_DFL);  // ignored, we would learn nothing of our children
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;  // a reader of our messages who has gone must not keep us from clearing up
  sigaction(SIGPIPE, &ignore, &old.pipe);
  return old;
}

int run_ranks(unsigned ranks, const std::vector<std::string> &command, const CallersSignals &signals,
              std::vector<std::string> *deaths) {
  Ranks group(signals);
  const int trouble = group.start(ranks, command);
  if (trouble == 0) {
    const int status = group.wait();
    *deaths = group.describe_deaths();
    return status;
  }
  if (trouble < 0) {
    node::print_error("cannot start %u ranks: %s; ask for fewer, or see ulimit -u", ranks, strerror(errno));
    return kOwnFailure;
  }
  node::print_error("cannot start %s: %s", command[0].c_str(), strerror(trouble));
  return trouble == ENOENT ? kNotFound : kCannotStart;
}

}  // namespace vgpu::run
