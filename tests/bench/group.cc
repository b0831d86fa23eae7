#include "group.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <cerrno>
#include <exception>

#include "failure.h"

namespace bench {
namespace {

[[noreturn]] void run_child(pid_t parent, unsigned index, const Group::Body &body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  const int status = run("bench child", [&] { body(index); });
  _exit(status);  // not exit: buffers and temporary directories are the parent's
}

int reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Group::Group(unsigned processes, const Body &body) {
  for (unsigned i = 0; i < processes; ++i) spawn(body);
}

Group::~Group() {
  signal_all(SIGKILL);
  for (const pid_t pid : pids_) {
    if (pid != 0) reap(pid);
  }
}

pid_t Group::spawn(const Body &body) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw Failure("fork: %s", std::strerror(errno));
  if (child == 0) run_child(parent, static_cast<unsigned>(pids_.size()), body);
  pids_.push_back(child);
  return child;
}

void Group::signal_all(int signal) const {
  for (const pid_t pid : pids_) {
    if (pid != 0) ::kill(pid, signal);
  }
}

void Group::wait_for_zombies() const {
  for (const pid_t pid : pids_) {
    siginfo_t info;
    while (pid != 0 && waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
  }
}

void Group::join() {
  bool well = true;
  for (pid_t &pid : pids_) {
    if (pid == 0) continue;
    well = reap(pid) == 0 && well;
    pid = 0;
  }
  if (!well) throw Failure("a child did not end well");
}

void Group::kill(unsigned index) {
  if (pids_[index] == 0) return;
  ::kill(pids_[index], SIGKILL);
  reap(pids_[index]);
  pids_[index] = 0;
}

}  // namespace bench
