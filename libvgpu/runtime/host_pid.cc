#include "host_pid.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"
#include "base/file_status.h"
#include "base/wiped.h"
#include "contexts.h"
#include "job_processes.h"
#include "log.h"
#include "region/files.h"
#include "region/liveness.h"
#include "runtime.h"

namespace vgpu::runtime {

namespace {

constexpr std::uint64_t kStepNs = 20'000'000;
constexpr unsigned kSteps = 10;
constexpr unsigned kLockMs = 10'000;  // more than a hundred ranks that follow each other without a pause

struct HostPid {
  std::atomic<std::uint32_t> number;             // 0: not known
  std::atomic<bool> found;                       // by a search: may be wrong
  std::atomic<bool> searching;                   // one thread is
  std::atomic<bool> tried[region::kMaxDevices];  // once on every device
};
constinit WipedOnFork<HostPid> host_pid;

// To a point in time, so that a program full of signals does not use up the steps in no time.
void sleep_until(std::uint64_t due_ns) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const timespec due = {static_cast<time_t>(due_ns / kSecond), static_cast<long>(due_ns % kSecond)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr) == EINTR) {
  }
}

bool in_initial_pid_namespace() {
  struct stat status;
  return file_status("/proc/self/ns/pid", &status) && status.st_ino == kInitialPidNamespace;
}

}  // namespace

unsigned nvml_pid() {
  HostPid *state = host_pid.get();
  if (state == nullptr) return 0;
  std::uint32_t number = state->number.load(std::memory_order_relaxed);
  if (number == 0 && in_initial_pid_namespace()) {
    number = static_cast<std::uint32_t>(getpid());
    state->number.store(number, std::memory_order_relaxed);
  }
  return number;
}

bool doubt_host_pid() {
  HostPid *state = host_pid.get();
  if (state == nullptr || !state->found.exchange(false, std::memory_order_relaxed)) return false;
  log_format(LogLevel::info, "process %d took the node's process %u for itself", getpid(), nvml_pid());
  state->number.store(0, std::memory_order_relaxed);
  rank().note_host_pid(0);
  return true;
}

HostPidSearch::HostPidSearch(unsigned dev) : dev_(dev) {
  if (nvml_pid() != 0) return;
  HostPid *state = host_pid.get();
  // A process that has a context there is listed already. One thread is enough, and nobody waits for it.
  if (state == nullptr || live_contexts(dev) != 0 || state->tried[dev].load(std::memory_order_relaxed)) return;
  ours_ = !state->searching.exchange(true, std::memory_order_acquire);
  if (!ours_) return;
  state->tried[dev].store(true, std::memory_order_relaxed);
  active_ = begin();
}

bool HostPidSearch::begin() {
  file_ = reopen_usage(job_region().usage_path(), O_RDWR);
  if (!file_) return false;
  if (const Error error = FileLock::acquire(file_.get(), region::kDetectionByte, kLockMs, &lock_)) {
    log_format(LogLevel::info, "process %d did not get its turn to find its number on the node: %s", getpid(),
               error.text);
    return false;
  }
  return list_processes(dev_, &before_);
}

HostPidSearch::~HostPidSearch() {
  if (ours_) host_pid.get()->searching.store(false, std::memory_order_release);
}

// 0: nobody is new, or more than one is.
unsigned HostPidSearch::find_new() const {
  NvmlProcesses now;
  if (!list_processes(dev_, &now)) return 0;
  JobProcesses job;
  for (unsigned i = 0; i < now.count; ++i) job.see(now.entries[i].pid);
  unsigned candidate = 0;
  for (unsigned i = 0; i < now.count; ++i) {
    const unsigned pid = now.entries[i].pid;
    if (before_.find(pid) != nullptr || pid == candidate) continue;
    if (pid != static_cast<unsigned>(getpid()) && job.has(pid)) continue;
    if (candidate != 0) return 0;
    candidate = pid;
  }
  return candidate;
}

void HostPidSearch::finish() {
  if (!active_) return;
  std::uint64_t due_ns = monotonic_ns();
  unsigned number = find_new();
  for (unsigned step = 0; number == 0 && step < kSteps; ++step) {
    sleep_until(due_ns += kStepNs);
    number = find_new();
  }
  if (number == 0) {
    log_format(LogLevel::info, "NVML does not show which process of the node %d is; what its contexts take is a guess",
               getpid());
    return;
  }
  HostPid &state = *host_pid.get();
  state.found.store(true, std::memory_order_relaxed);
  state.number.store(number, std::memory_order_relaxed);
  // A driver that names us as we do ourselves has not said what the host calls us.
  if (number != static_cast<unsigned>(getpid())) rank().note_host_pid(number);
  log_format(LogLevel::debug, "process %d is process %u of the node", getpid(), number);
}

}  // namespace vgpu::runtime
