#include "host_pid.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"
#include "base/file_status.h"
#include "base/mutex.h"
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

// Who might be this process: listed by NVML, and nobody of the job.
struct Candidate {
  unsigned pid;
  std::uint64_t bytes;
};
constexpr unsigned kMaxCandidates = 64;

struct Following {
  Mutex mutex;
  std::uint64_t held VGPU_GUARDED_BY(mutex);  // by us, when NVML said this
  unsigned count VGPU_GUARDED_BY(mutex);
  Candidate candidates[kMaxCandidates] VGPU_GUARDED_BY(mutex);
};
struct Followings {
  Following devices[region::kMaxDevices];
};
constinit WipedOnFork<Followings> followings;

bool in_initial_pid_namespace() {
  struct stat status;
  return file_status("/proc/self/ns/pid", &status) && status.st_ino == kInitialPidNamespace;
}

bool all_exist_here(const NvmlProcesses &processes) {
  for (unsigned i = 0; i < processes.count(); ++i) {
    if (kill(static_cast<pid_t>(processes.pid(i)), 0) != 0 && errno == ESRCH) return false;
  }
  return true;
}

void found_host_pid(unsigned number) {
  HostPid &state = *host_pid.get();
  state.found.store(true, std::memory_order_relaxed);
  state.number.store(number, std::memory_order_relaxed);
  // A driver that names us as we do ourselves has not said what the host calls us.
  if (number != static_cast<unsigned>(getpid())) rank().note_host_pid(number);
  log_format(LogLevel::debug, "process %d is process %u of the node", getpid(), number);
}

// The one process whose memory has changed since the last list by just as much as ours has. 0: nobody, or several.
unsigned follower(const Following &last, const NvmlProcesses &now, std::uint64_t held) VGPU_REQUIRES(last.mutex) {
  unsigned found = 0;
  for (unsigned i = 0; i < last.count; ++i) {
    const Candidate &candidate = last.candidates[i];
    std::uint64_t bytes = 0;
    if (!now.find(candidate.pid, &bytes) || bytes - candidate.bytes != held - last.held) continue;
    if (found != 0) return 0;
    found = candidate.pid;
  }
  return found;
}

unsigned follow(unsigned dev, const NvmlProcesses &now, std::uint64_t held) {
  Followings *all = followings.get();
  if (all == nullptr || host_pid.get() == nullptr) return 0;
  JobProcesses job;
  for (unsigned i = 0; i < now.count(); ++i) job.see(now.pid(i));
  Following &last = all->devices[dev];
  ScopedLock lock(last.mutex);
  const unsigned found = held != last.held ? follower(last, now, held) : 0;
  if (found != 0) {
    found_host_pid(found);
    return found;
  }
  last.held = held;
  last.count = 0;
  for (unsigned i = 0; i < now.count() && last.count < kMaxCandidates; ++i) {
    if (!job.has(now.pid(i))) last.candidates[last.count++] = {now.pid(i), now.bytes(i)};
  }
  return 0;
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
  for (std::atomic<bool> &tried : state->tried) tried.store(false, std::memory_order_relaxed);
  return true;
}

unsigned pid_in(unsigned dev, const NvmlProcesses &processes, std::uint64_t held) {
  const unsigned number = nvml_pid();
  const auto own = static_cast<unsigned>(getpid());
  std::uint64_t bytes = 0;
  if (number == own || processes.find(number, &bytes)) return number;
  // A driver that names only processes of this namespace, by their numbers here.
  if (processes.find(own, &bytes) && all_exist_here(processes)) return own;
  return number != 0 ? number : follow(dev, processes, held);
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
  for (unsigned i = 0; i < now.count(); ++i) job.see(now.pid(i));
  unsigned candidate = 0;
  for (unsigned i = 0; i < now.count(); ++i) {
    const unsigned pid = now.pid(i);
    std::uint64_t bytes = 0;
    if (before_.find(pid, &bytes) || pid == candidate) continue;
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
  found_host_pid(number);
}

}  // namespace vgpu::runtime
