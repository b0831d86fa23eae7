// Rank: a process's slot, and what it charges and releases.
#include <algorithm>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "claim.h"
#include "region.h"
#include "steps.h"
#include "sweep.h"

namespace vgpu::region {

namespace {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

constexpr std::uint64_t kSweepIntervalMs = 100;  // how long a memory query may believe the last sweep
constexpr std::uint64_t kThoroughIntervalMs = kGraceMs;
constexpr std::uint64_t kRetryIntervalMs = 100;  // how often a process without a slot looks for one

// Writes the line only when there is something to write.
void raise_peak(Word &peak, std::uint64_t units) {
  std::uint64_t seen = peak.load(memory_order_relaxed);
  while (units > seen) {
    // Relaxed: a number of its own that only grows.
    if (peak.compare_exchange_weak(seen, units, memory_order_relaxed)) {
      VGPU_STEP(peak_raised);
      return;
    }
  }
}

}  // namespace

// Lives in pages that the kernel wipes in a forked child; see base/wiped.h. All zeroes means detached and unlocked.
struct Rank::Process {
  // Serialises this process's operations on one device: a lane has one owner, not one per thread.
  struct Device {
    Mutex mutex;
    std::atomic<std::uint64_t> held_units;            // written under `mutex`; read by memory queries
    std::uint64_t peak_units VGPU_GUARDED_BY(mutex);  // the most it was
    std::atomic<std::uint64_t> seen_exits;            // any thread; what the last memory query knew
    std::atomic<std::uint64_t> swept_ms;              // any thread
    std::atomic<std::uint64_t> thorough_ms;           // any thread; when a refusal last looked hard
  };

  Mutex mutex;                       // attach, leave, and `info`
  std::atomic<std::uint64_t> owner;  // our owner word; 0: detached. Written under `mutex`, read by every operation
  unsigned slot;                     // written before `owner`
  Fault trouble VGPU_GUARDED_BY(mutex);
  std::uint64_t tried_ms VGPU_GUARDED_BY(mutex);  // when it last looked for a slot
  InfoValues info VGPU_GUARDED_BY(mutex);         // the shared block is a copy of it
  Device devices[kMaxDevices];
};

template <typename Update>
void Rank::update_info(Process &process, Update update) {
  ScopedLock lock(process.mutex);
  update(process.info);
  write_info(region_->usage().info(process.slot), process.info);
}

Error Rank::attach(const Region &region, Rank *rank) {
  if (rank->process_ != nullptr) return make_error(Fault::invalid, "this rank is attached already");
  void *pages = nullptr;
  if (Error error = map_wiped_on_fork(sizeof(Process), &pages)) return error;
  rank->region_ = &region;
  rank->process_ = static_cast<Process *>(pages);
  return rank->attach_now() != nullptr ? Error{} : rank->trouble();
}

Rank::~Rank() {
  if (process_ != nullptr) leave();
}

Rank::Process *Rank::attach_now() {
  ScopedLock lock(process_->mutex);
  if (process_->owner.load(memory_order_relaxed) != 0) return process_;  // another thread was first
  if (process_->trouble == Fault::corrupt) return nullptr;               // evicted: see attached()
  const std::uint64_t now = coarse_ms();
  if (process_->trouble == Fault::no_slot && now - process_->tried_ms < kRetryIntervalMs) return nullptr;
  process_->tried_ms = now;

  const Claim claim = claim_slot(*region_);
  process_->trouble = claim.fault;
  if (claim.fault != Fault::none) return nullptr;
  process_->slot = claim.slot;
  process_->info = {};
  process_->info.start_time = claim.start_time;
  write_info(region_->usage().info(claim.slot), process_->info);
  process_->owner.store(claim.owner, memory_order_release);  // publishes `slot` to the other threads
  return process_;
}

Rank::Process *Rank::attached() {
  const std::uint64_t mine = process_->owner.load(memory_order_acquire);
  if (mine == 0) return attach_now();
  // Nobody takes a living rank's slot, unless the job's own user tampers with the region. Then what we held is no
  // longer counted, so nothing more may be had.
  const std::uint64_t now = region_->usage().owner(process_->slot).load(memory_order_relaxed);
  if (((now ^ mine) & ~OwnerWord::State::put(OwnerWord::State::kMask)) == 0) return process_;
  ScopedLock lock(process_->mutex);
  process_->trouble = Fault::corrupt;
  process_->owner.store(0, memory_order_release);
  return nullptr;
}

Commit Rank::change(Process &process, unsigned dev, const LaneChange &change) {
  const Usage &usage = region_->usage();
  Process::Device &device = process.devices[dev];
  LaneResult result;
  std::uint64_t held = 0;
  bool own_peak = false;
  {
    ScopedLock lock(device.mutex);
    result = change_lane(usage, dev, change);
    if (result.commit == Commit::no_room) return Commit::no_room;
    held = device.held_units.load(memory_order_relaxed) - result.units_before + result.units_after;
    device.held_units.store(held, memory_order_relaxed);
    own_peak = held > device.peak_units;
    if (own_peak) device.peak_units = held;
  }
  if (change.grow) raise_peak(usage.device(dev).peak_units, result.total_units);
  if (own_peak) {
    update_info(process, [&](InfoValues &info) { info.peak_units = std::max(info.peak_units, held); });
  }
  return Commit::done;
}

Grant Rank::add(unsigned dev, Kind kind, std::uint64_t bytes, const Word *limit) {
  Process *process = attached();
  if (process == nullptr) return Grant::detached;
  const LaneChange growth = {lane_number(process->slot, static_cast<unsigned>(kind)), true, units_for(bytes), limit};
  if (change(*process, dev, growth) == Commit::done) return Grant::granted;

  // A refusal is true only if no dead rank holds any of it. Outside the private mutex: other threads go on.
  sweep_device(dev, Effort::quick);
  if (change(*process, dev, growth) == Commit::done) return Grant::granted;
  const std::uint64_t now = coarse_ms();
  std::atomic<std::uint64_t> &thorough_ms = process->devices[dev].thorough_ms;
  if (now - thorough_ms.load(memory_order_relaxed) >= kThoroughIntervalMs) {
    thorough_ms.store(now, memory_order_relaxed);
    sweep_device(dev, Effort::thorough);
    if (change(*process, dev, growth) == Commit::done) return Grant::granted;
  }

  return Grant::refused;
}

Grant Rank::try_to_reserve(unsigned dev, Kind kind, std::uint64_t bytes) {
  return add(dev, kind, bytes, &region_->device(dev).memory_bytes);
}

void Rank::note_refusal(unsigned dev) {
  Process *process = attached();
  if (process == nullptr) return;
  region_->usage().device(dev).refused.fetch_add(1, memory_order_relaxed);
  VGPU_STEP(refusal_counted);
  update_info(*process, [](InfoValues &info) { ++info.refused; });
}

Grant Rank::force(unsigned dev, Kind kind, std::uint64_t bytes) { return add(dev, kind, bytes, nullptr); }

void Rank::release(unsigned dev, Kind kind, std::uint64_t bytes) {
  // A child that frees what its parent allocated has nothing here to give back.
  if (process_->owner.load(memory_order_acquire) == 0) return;
  Process *process = attached();
  if (process == nullptr) return;
  change(*process, dev, {lane_number(process->slot, static_cast<unsigned>(kind)), false, units_for(bytes)});
}

void Rank::sweep_device(unsigned dev, Effort effort) {
  LivenessCheck liveness(region_->usage_path(), region_->usage(), effort);
  sweep(region_->usage(), liveness, dev);
}

std::uint64_t Rank::memory_used(unsigned dev) {
  const std::uint64_t used = region_->memory_used(dev);
  Process::Device &device = process_->devices[dev];
  if (bytes_of(device.held_units.load(memory_order_relaxed)) == used) return used;  // all of it is ours

  const std::uint64_t exits = region_->usage().device(dev).exits.load(memory_order_acquire);
  const std::uint64_t now = coarse_ms();
  if (exits == device.seen_exits.load(memory_order_relaxed) &&
      now - device.swept_ms.load(memory_order_relaxed) < kSweepIntervalMs) {
    return used;
  }
  device.seen_exits.store(exits, memory_order_relaxed);
  device.swept_ms.store(now, memory_order_relaxed);
  sweep_device(dev, Effort::quick);
  return region_->memory_used(dev);
}

std::uint64_t Rank::memory_held(unsigned dev) const {
  return bytes_of(process_->devices[dev].held_units.load(memory_order_relaxed));
}

ContextFigure Rank::context_figure(unsigned dev) const {
  const DeviceIdentity &identity = region_->device(dev).identity;
  // Relaxed: a number of its own. The job's user can write there what they like, so it must make sense.
  const std::uint64_t measured = region_->usage().device(dev).context_units.load(memory_order_relaxed);
  if (measured != 0 && measured <= units_for(identity.memory_bytes)) {
    return {bytes_of(measured), ContextSource::measured};
  }
  return {std::uint64_t{identity.context_mib} << 20, ContextSource::unknown};
}

void Rank::note_context(unsigned dev, std::uint64_t bytes) {
  region_->usage().device(dev).context_units.store(units_for(bytes), memory_order_relaxed);
}

void Rank::note_launches(unsigned dev, std::uint64_t launches) {
  Process *process = attached();
  if (process == nullptr) return;
  region_->usage().device(dev).launches.fetch_add(launches, memory_order_relaxed);
  update_info(*process, [&](InfoValues &info) { info.launches += launches; });
}

void Rank::note_throttled(unsigned dev, std::uint64_t nanoseconds) {
  Process *process = attached();
  if (process == nullptr) return;
  region_->usage().device(dev).throttled_ns.fetch_add(nanoseconds, memory_order_relaxed);
  update_info(*process, [&](InfoValues &info) { info.throttled_ns += nanoseconds; });
}

void Rank::note_host_pid(std::uint32_t pid) {
  Process *process = attached();
  if (process != nullptr) update_info(*process, [&](InfoValues &info) { info.host_pid = pid; });
}

void Rank::leave() {
  ScopedLock lock(process_->mutex);
  std::uint64_t owner = process_->owner.load(memory_order_relaxed);
  if (OwnerWord::unpack(owner).state != OwnerWord::kActive) return;
  OwnerWord exiting = OwnerWord::unpack(owner);
  exiting.state = OwnerWord::kExiting;
  const Usage &usage = region_->usage();
  if (!usage.owner(process_->slot).compare_exchange_strong(owner, exiting.pack(), memory_order_acq_rel)) return;
  VGPU_STEP(leave_marked);
  process_->owner.store(exiting.pack(), memory_order_release);
  for (unsigned dev = 0; dev < usage.ndev(); ++dev) {
    // Release: whoever sees the count sees the slot marked.
    if (process_->devices[dev].held_units.load(memory_order_relaxed) == 0) continue;
    usage.device(dev).exits.fetch_add(1, memory_order_release);
    VGPU_STEP(leave_counted);
  }
}

unsigned Rank::slot() const {
  return process_ != nullptr && process_->owner.load(memory_order_acquire) != 0 ? process_->slot : kRootSlot;
}

Error Rank::trouble() const {
  if (process_ == nullptr) return make_error(Fault::invalid, "this process never attached to a region");
  ScopedLock lock(process_->mutex);
  if (process_->trouble == Fault::no_slot) {
    return make_error(Fault::no_slot,
                      "job %llu has %u processes with GPU contexts already; end some of them on this node",
                      static_cast<unsigned long long>(region_->job().job_id), kSlots - 1);
  }
  if (process_->trouble == Fault::system) {
    return make_error(Fault::system, "no file descriptor to spare; raise the limit (ulimit -n)");
  }
  if (process_->trouble == Fault::corrupt) {
    return make_error(Fault::corrupt, "the region of job %llu was tampered with; start the process again",
                      static_cast<unsigned long long>(region_->job().job_id));
  }
  return {};
}

}  // namespace vgpu::region
