// Root at work on a living region: change its limits, sweep it.
//
// The usage file belongs to the job's user, who may truncate it at any moment: a process that maps it must be ready to
// die of SIGBUS. So all work on the mapping is done by a child, which shares nothing with its parent but the result.
// What must not fail because of them, storing the limits, needs only root's own file.
#include "admin.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <initializer_list>

#include "base/file_lock.h"
#include "base/file_status.h"
#include "files.h"
#include "names.h"
#include "region.h"
#include "steps.h"
#include "sweep.h"

namespace vgpu::region {

namespace {

constexpr unsigned kLockTimeoutMs = 10'000;
constexpr unsigned kChildSeconds = 10;  // a user who changes the file without end cannot keep us longer

struct ChildResult {
  bool finished;
  unsigned count;
};

// The caller may have blocked or caught these; the child must be able to die of them.
void let_die_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) {
    signal(number, SIG_DFL);
    sigaddset(&set, number);
  }
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

bool has_full_size(const ScopedFd &usage, std::size_t size) {
  struct stat status;
  return file_status(usage.get(), &status) && static_cast<std::size_t>(status.st_size) >= size;
}

// Runs `work` on a mapping of the usage file in a child process. `work` must not allocate. False: it did not finish.
template <typename Work>
bool on_mapping(const RegionFiles &files, Work work, unsigned *count) {
  const unsigned ndev = files.header.ndev;
  const std::size_t size = usage_size(ndev, files.header.layout);
  void *shared = mmap(nullptr, sizeof(ChildResult), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return false;
  auto *result = static_cast<ChildResult *>(shared);
  const pid_t child = fork();
  if (child == 0) {
    let_die_of({SIGBUS, SIGALRM});
    alarm(kChildSeconds);
    const ScopedMapping mapping(files.usage.get(), size, PROT_READ | PROT_WRITE);
    if (mapping) {
      result->count = work(Usage(mapping.get(), ndev, files.header.layout));
      // The kernel counts in pages: behind the end of a file that was cut off, the rest of its last page (64 KiB on some
      // ARM kernels) can be touched without a SIGBUS.
      result->finished = has_full_size(files.usage, size);
    }
    _exit(0);
  }
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  const bool finished = result->finished;
  if (count != nullptr) *count = result->count;
  munmap(shared, sizeof(ChildResult));
  return finished;
}

Error check_change(const char *directory, const RegionFiles &files, const LimitChange &change) {
  if (change.dev != kAllDevices && change.dev >= files.header.ndev) {
    return make_error(Fault::invalid, "%s has %u GPUs, there is no GPU %u", directory, files.header.ndev, change.dev);
  }
  if (change.memory_limit != LimitChange::kKeepMemory) {
    if (Error error = check_memory_limit(change.memory_limit)) return error;
  }
  if (change.sm_percent == LimitChange::kKeepSm) return {};
  if (Error error = check_sm_percent(change.sm_percent)) return error;
  if (files.job.launch_hooks == 0) {
    return make_error(Fault::invalid, "job %llu started without an SM limit, so its launches are not hooked",
                      static_cast<unsigned long long>(files.job.job_id));
  }
  return {};
}

}  // namespace

void retire_old_limit(const Usage &usage, unsigned dev) {
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

Error change_limits(const char *directory, Trust trust, const LimitChange &change, Error *damage) {
  RegionFiles files;
  if (Error error = open_limits(directory, trust, O_RDWR, &files)) return error;
  if (Error error = check_change(directory, files, change)) return error;
  const ScopedMapping mapping(files.limits.get(), limits_size(files.header.ndev), PROT_READ | PROT_WRITE);
  if (!mapping) return system_error("cannot map %s/limits", directory);
  auto &limits = *static_cast<LimitsFile *>(mapping.get());

  // A file of its own that only root can open: a user's read lock on `limits` would keep root out.
  const ScopedFd lock_file(openat(files.directory.get(), kLockName, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!lock_file) return system_error("cannot open %s/lock", directory);
  FileLock lock;
  if (Error error = FileLock::acquire(lock_file.get(), 0, kLockTimeoutMs, &lock)) return error;

  const unsigned first = change.dev == kAllDevices ? 0 : change.dev;
  const unsigned last = change.dev == kAllDevices ? files.header.ndev - 1 : change.dev;
  for (unsigned dev = first; dev <= last; ++dev) {
    DeviceLimits &device = limits.devices[dev];
    // Release: pairs with the acquire load in commit().
    if (change.memory_limit != LimitChange::kKeepMemory) {
      device.memory_bytes.store(change.memory_limit, std::memory_order_release);
    }
    if (change.sm_percent != LimitChange::kKeepSm) {
      device.sm_percent.store(change.sm_percent, std::memory_order_relaxed);
    }
    VGPU_STEP(limit_stored);
  }
  // Release: a rank that sees the new generation sees the new limits. Then wake those that wait for it.
  limits.generation.fetch_add(1, std::memory_order_release);
  VGPU_STEP(limit_generation_raised);
  syscall(SYS_futex, &limits.generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  if (change.memory_limit == LimitChange::kKeepMemory) return {};

  // Unchecked, because all that its owner could do to it must not hinder us: the limits are set already.
  files.usage = ScopedFd(openat(files.directory.get(), kUsageName, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  const auto work = [&](const Usage &usage) {
    for (unsigned dev = first; dev <= last; ++dev) retire_old_limit(usage, dev);
    return last - first + 1;
  };
  if (files.usage && on_mapping(files, work, nullptr)) return {};
  const Error error = make_error(Fault::corrupt,
                                 "the new limit is set, but %s/usage is damaged or changing under us; an allocation "
                                 "that was under way may still have used the old limit",
                                 directory);
  if (damage == nullptr) return error;
  *damage = error;
  return {};
}

Error sweep_region(const char *directory, Trust trust, unsigned *reclaimed) {
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDWR, &files)) return error;
  const auto work = [&](const Usage &usage) {
    LivenessCheck liveness({directory, files.usage_identity}, usage);
    return sweep(usage, liveness, kAllDevices);
  };
  if (on_mapping(files, work, reclaimed)) return {};
  return make_error(Fault::corrupt, "%s/usage is damaged or changing under us; nothing was swept", directory);
}

Error settle_region(const char *directory, Trust trust, unsigned dev, const SeenRank *seen, unsigned count,
                    unsigned *corrected) {
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDWR, &files)) return error;
  if (dev >= files.header.ndev) {
    return make_error(Fault::invalid, "%s has %u GPUs, there is no GPU %u", directory, files.header.ndev, dev);
  }
  const ScopedMapping mapping(files.limits.get(), limits_size(files.header.ndev), PROT_READ);
  if (!mapping) return system_error("cannot map %s/limits", directory);
  const ContextFigure figure = known_context(static_cast<const LimitsFile *>(mapping.get())->devices[dev]);
  const std::uint64_t least = figure.source >= ContextSource::measured ? figure.bytes : 0;  // a guess is no floor
  const auto work = [&](const Usage &usage) {
    unsigned done = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (seen[i].slot > kRootSlot && seen[i].slot < kSlots) done += correct_context(usage, dev, seen[i], least);
    }
    return done;
  };
  if (on_mapping(files, work, corrected)) return {};
  return make_error(Fault::corrupt, "%s/usage is damaged or changing under us; nothing was corrected", directory);
}

}  // namespace vgpu::region
