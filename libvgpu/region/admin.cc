// Root at work on a living region: change its limits, sweep it.
//
// The usage file belongs to the job's user, who may truncate it at any moment: a process that maps it must be ready to
// die of SIGBUS. So all work on the mapping is done by a child, which shares nothing with its parent but the result.
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "admin.h"
#include "file_lock.h"
#include "files.h"
#include "region.h"
#include "steps.h"
#include "sweep.h"

namespace vgpu {

namespace {

constexpr unsigned kLockTimeoutMs = 10'000;
constexpr unsigned kChildSeconds = 10;  // a user who changes the file without end cannot keep us longer

struct ChildResult {
  bool finished;
  unsigned count;
};

// Runs `work` on a mapping of the usage file in a child process. `work` must not allocate.
template <typename Work>
Error on_mapping(const char *directory, const RegionFiles &files, Work work, unsigned *count) {
  void *shared = mmap(nullptr, sizeof(ChildResult), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return system_error("vgpu: no memory");
  auto *result = static_cast<ChildResult *>(shared);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGBUS, SIG_DFL);
    signal(SIGALRM, SIG_DFL);
    alarm(kChildSeconds);
    const ScopedMapping mapping(files.usage.get(), usage_size(files.ndev), PROT_READ | PROT_WRITE);
    if (mapping) {
      result->count = work(Usage(mapping.get(), files.ndev));
      result->finished = true;
    }
    _exit(0);
  }
  Error error;
  if (child < 0) {
    error = system_error("vgpu: cannot start a child");
  } else {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (!result->finished) {
      error = make_error(Fault::truncated, "vgpu: %s/usage was truncated or is being tampered with by its owner%s%s",
                         directory, WIFSIGNALED(status) ? ": " : "",
                         WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");
    }
  }
  if (count != nullptr) *count = result->count;
  munmap(shared, sizeof(ChildResult));
  return error;
}

Error check_change(const char *directory, const LimitsFile &limits, const LimitChange &change) {
  if (change.dev != kAllDevices && change.dev >= limits.header.ndev) {
    return make_error(Fault::invalid, "vgpu: %s has %u GPUs, there is no GPU %u", directory, limits.header.ndev,
                      change.dev);
  }
  if (change.memory_limit != LimitChange::kKeepMemory &&
      (change.memory_limit < kUnitBytes || change.memory_limit / kUnitBytes > kMaxUnits)) {
    return make_error(Fault::invalid, "vgpu: a memory limit of %llu bytes is out of range",
                      static_cast<unsigned long long>(change.memory_limit));
  }
  if (change.sm_percent == LimitChange::kKeepSm) return {};
  if (change.sm_percent < 1 || change.sm_percent > 100) {
    return make_error(Fault::invalid, "vgpu: an SM limit of %u percent is not within 1 to 100", change.sm_percent);
  }
  if (limits.job.launch_hooks == 0) {
    return make_error(Fault::invalid,
                      "vgpu: job %llu started without an SM limit, so its launches are not hooked; start it with "
                      "--gpu-sm, or set sm=live in plugstack.conf for all jobs",
                      static_cast<unsigned long long>(limits.job.job_id));
  }
  return {};
}

}  // namespace

void set_memory_limit(const Usage &usage, unsigned dev, Word &limit, std::uint64_t bytes) {
  // Release: pairs with the acquire load in commit().
  limit.store(bytes, std::memory_order_release);
  VGPU_STEP(limit_stored);
  // A predecessor may have died between the two halves of its own no-op. Finish it first: otherwise ours would be
  // taken for that one and commit nothing.
  const std::uint64_t total = usage.device(dev).total.load(std::memory_order_acquire);
  VGPU_STEP(limit_read_total);
  help(usage, dev, total);
  // Change the device word without changing its value: every CAS that was prepared under the old limit now fails.
  const std::uint64_t number = lane_number(kRootSlot, 0);
  Lane &lane = usage.lane(number, dev);
  const LaneWord from = LaneWord::unpack(lane.current.load(std::memory_order_acquire));
  VGPU_STEP(limit_read_current);
  const LaneWord to = {from.units, from.next_seq()};
  lane.next.store(to.pack(), std::memory_order_release);
  VGPU_STEP(limit_published);
  commit(usage, dev, {number, from, to}, nullptr);
}

Error change_limits(const char *directory, Trust trust, const LimitChange &change) {
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDWR, O_RDWR, &files)) return error;
  const ScopedMapping mapping(files.limits.get(), limits_size(files.ndev), PROT_READ | PROT_WRITE);
  if (!mapping) return system_error("vgpu: cannot map %s/limits", directory);
  auto &limits = *static_cast<LimitsFile *>(mapping.get());
  if (Error error = check_change(directory, limits, change)) return error;

  FileLock lock;
  if (Error error = FileLock::acquire(files.limits.get(), 0, kLockTimeoutMs, &lock)) return error;
  const unsigned first = change.dev == kAllDevices ? 0 : change.dev;
  const unsigned last = change.dev == kAllDevices ? files.ndev - 1 : change.dev;
  Error error;
  if (change.memory_limit != LimitChange::kKeepMemory) {
    const auto work = [&](const Usage &usage) {
      for (unsigned dev = first; dev <= last; ++dev) {
        set_memory_limit(usage, dev, limits.devices[dev].memory_bytes, change.memory_limit);
      }
      return last - first + 1;
    };
    error = on_mapping(directory, files, work, nullptr);
  }
  if (change.sm_percent != LimitChange::kKeepSm) {
    for (unsigned dev = first; dev <= last; ++dev) {
      limits.devices[dev].sm_percent.store(change.sm_percent, std::memory_order_relaxed);
    }
  }
  // Release: a rank that sees the new generation sees the new limits. Then wake those that wait for it.
  limits.generation.fetch_add(1, std::memory_order_release);
  VGPU_STEP(limit_generation_raised);
  syscall(SYS_futex, &limits.generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return error;
}

Error sweep_region(const char *directory, Trust trust, unsigned *reclaimed) {
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDONLY, O_RDWR, &files)) return error;
  const auto work = [&](const Usage &usage) {
    Prober prober({directory, files.usage_identity}, usage);
    return sweep(usage, prober, kAllDevices);
  };
  return on_mapping(directory, files, work, reclaimed);
}

}  // namespace vgpu
