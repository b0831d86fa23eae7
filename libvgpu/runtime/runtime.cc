#include "runtime.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "base/mutex.h"
#include "base/wiped.h"
#include "config.h"
#include "driver/flags.h"
#include "log.h"
#include "region/files.h"

namespace vgpu::runtime {

std::atomic<Runtime *> runtime_state{nullptr};
std::atomic<Mode> runtime_mode{Mode::unknown};

namespace {

// Wiped on fork, so that a child never finds it locked by a thread it does not have.
constinit WipedOnFork<Mutex> starting;

// A site that fails open means what went wrong on its node: what is wrong with root's files, or with who owns ours. Whoever
// runs here can take the right to read or the size from the file in which he counts, and descriptors or memory from himself.
bool is_roots_fault(const Error &error) {
  region::RegionFiles files;
  const Error roots = region::open_limits(region_directory(), region_trust(), O_RDONLY, &files);
  if (roots) return roots.fault != Fault::system && roots.fault != Fault::invalid;
  return error.fault == Fault::not_found || error.fault == Fault::wrong_owner;
}

Mode without_region(const Error &error) {
  const bool open = is_roots_fault(error) && site_fails_open();
  log_format(LogLevel::error, "%s; %s", error.text,
             open ? "this site lets the program go on without limits" : "the GPU cannot be used");
  return open ? Mode::inert : Mode::closed;
}

Mode attach() {
  void *memory = mmap(nullptr, sizeof(Runtime), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Mode::closed;
  Runtime *state = new (memory) Runtime;
  if (const Error error = region::Region::attach(region_directory(), region_trust(), &state->region))
    return without_region(error);
  // Without a slot every allocation is refused, with the reason; a slot may come free.
  if (const Error error = region::Rank::attach(state->region, &state->rank); error.fault == Fault::system) {
    return without_region(error);
  }
  log_format(LogLevel::info, "process %d has slot %u of job %llu in %s", getpid(), state->rank.slot(),
             static_cast<unsigned long long>(state->region.job().job_id), region_directory());
  runtime_state.store(state, std::memory_order_relaxed);  // published by the mode
  return Mode::active;
}

// Only a mark for the others: whoever cleans up later than we do still calls the driver.
__attribute__((destructor)) void leave() {
  if (runtime_mode.load(std::memory_order_acquire) == Mode::active) rank().leave();
}

}  // namespace

Mode start_runtime() {
  if (!driver::region_is_expected()) {
    runtime_mode.store(Mode::inert, std::memory_order_release);
    return Mode::inert;
  }
  Mutex *mutex = starting.get();
  if (mutex == nullptr) return Mode::closed;
  ScopedLock lock(*mutex);
  Mode now = runtime_mode.load(std::memory_order_acquire);
  if (now != Mode::unknown) return now;
  now = attach();
  runtime_mode.store(now, std::memory_order_release);
  return now;
}

}  // namespace vgpu::runtime

namespace vgpu::driver {

// Known before anything is attached to, because it decides which functions a program is given.
Flag decide_launches_metered() {
  bool metered = false;
  if (region_is_expected()) {
    region::RegionFiles files;
    // A region that cannot be had is complained of where it matters; until then, not to hook would let launches through.
    metered = region::open_limits(runtime::region_directory(), runtime::region_trust(), O_RDONLY, &files) ||
              files.job.launch_hooks != 0;
  }
  const driver::Flag flag = metered ? driver::Flag::yes : driver::Flag::no;
  launches_metered.store(flag, std::memory_order_relaxed);
  return flag;
}

}  // namespace vgpu::driver
