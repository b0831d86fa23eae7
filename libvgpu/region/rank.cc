// Rank: a process's slot, and what it charges and releases.
#include <algorithm>

#include "base/clock.h"
#include "base/wiped.h"
#include "claim.h"
#include "rank_process.h"
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

// What the slot's last owner shared, or had from others, went with it.
void forget_sharing(const Usage &usage, unsigned slot) {
  if (!usage.has_appendix()) return;
  for (unsigned dev = 0; dev < usage.ndev(); ++dev) {
    usage.slot_more(slot, dev).exported_units.store(0, memory_order_relaxed);
    usage.slot_more(slot, dev).imported_units.store(0, memory_order_relaxed);
  }
}

}  // namespace

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
  forget_sharing(region_->usage(), claim.slot);
  process_->info = {};
  process_->info.start_time = claim.start_time;
  write_info(region_->usage().info(claim.slot), process_->info);
  process_->owner.store(claim.owner, memory_order_release);  // publishes `slot` to the other threads
  return process_;
}

Rank::Process *Rank::attach_again(std::uint64_t mine) {
  if (mine == 0) return attach_now();
  // Nobody takes a living rank's slot, unless the job's own user tampers with the region. Then what we held is no
  // longer counted, so nothing more may be had.
  ScopedLock lock(process_->mutex);
  process_->trouble = Fault::corrupt;
  process_->owner.store(0, memory_order_release);
  return nullptr;
}

namespace {

// Whether others may change the lane of this kind, and so must be kept out while its owner does.
bool is_guarded(const Usage &usage, Kind kind) {
  return usage.has_appendix() && (kind == Kind::context || kind == Kind::other);
}
bool is_ours_alone(Kind kind) { return kind == Kind::module || kind == Kind::data; }

}  // namespace

// Flattened for the same reason as change_lane().
[[gnu::flatten]] Commit Rank::change(Process &process, unsigned dev, Kind kind, const Change &change) {
  const Usage &usage = region_->usage();
  Process::Device &device = process.devices[dev];
  const std::uint64_t number = lane_number(process.slot, static_cast<unsigned>(kind));
  const GuardedLane lane = {dev, process.slot, kind == Kind::context ? Guarded::context : Guarded::other};
  const bool guarded = is_guarded(usage, kind);
  LaneResult result;
  std::uint64_t idle = 0;
  {
    ScopedLock lock(device.mutex);
    if (guarded) idle = close_guard(usage, lane);
    result = change_lane(usage, dev, {number, change.grow, change.units, change.limit_bytes});
    if (guarded && (kind != Kind::context || device.contexts_in_progress == 0)) open_guard(usage, lane, idle);
    if (result.commit == Commit::no_room) return Commit::no_room;
    if (is_ours_alone(kind)) {
      const std::uint64_t held = device.held_units.load(memory_order_relaxed);
      device.held_units.store(held - result.units_before + result.units_after, memory_order_relaxed);
    }
  }
  if (change.grow) device.grown.store(true, memory_order_relaxed);
  if (change.grow || change.never_was) return Commit::done;
  const std::uint64_t gone = result.units_before - result.units_after;
  const std::uint64_t total = result.total_units + gone, held = held_units(process, dev) + gone;
  // What is idle is asked for only where it can matter.
  if (total > usage.device(dev).peak_units.load(memory_order_relaxed) ||
      held > device.peak_units.load(memory_order_relaxed)) {
    raise_peaks(process, dev, total, held, kind == Kind::other ? idle : units_for(this->idle(dev)));
  }
  return Commit::done;
}

std::uint64_t Rank::held_units(const Process &process, unsigned dev) const {
  const SlotLanes &lanes = region_->usage().lanes(process.slot, dev);
  std::uint64_t units = process.devices[dev].held_units.load(memory_order_relaxed);
  for (const Kind kind : {Kind::context, Kind::other}) {
    // Acquire: others may have changed it.
    const Word &current = lanes.kinds[static_cast<unsigned>(kind)].current;
    units += LaneWord::unpack(current.load(memory_order_acquire)).units;
  }
  return units;
}

// The most there ever was is there right before something goes. So only who gives back raises the peaks, which also keeps
// out what was reserved and never came to be; readers add what is there now.
void Rank::raise_peaks(Process &process, unsigned dev, std::uint64_t total_units, std::uint64_t held_units,
                       std::uint64_t idle_units) {
  raise_peak(region_->usage(), dev, total_units - std::min(total_units, idle_units));
  const std::uint64_t held = held_units - std::min(held_units, idle_units);
  std::atomic<std::uint64_t> &peak = process.devices[dev].peak_units;
  if (held <= peak.load(memory_order_relaxed)) return;
  update_info(process, [&](InfoValues &info) {
    peak.store(std::max(held, peak.load(memory_order_relaxed)), memory_order_relaxed);
    info.peak_units = std::max(info.peak_units, held);
  });
}

Grant Rank::add(unsigned dev, Kind kind, std::uint64_t bytes, const Word *limit) {
  Process *process = attached();
  if (process == nullptr) return Grant::detached;
  const Change growth = {true, units_for(bytes), limit};
  if (change(*process, dev, kind, growth) == Commit::done) return Grant::granted;

  // A refusal is true only if nothing is idle and no dead rank holds any of it. Outside the private mutex: other threads
  // go on.
  if (give_up_idle(dev) != 0 && change(*process, dev, kind, growth) == Commit::done) return Grant::granted;
  sweep_device(dev, Effort::quick);
  if (change(*process, dev, kind, growth) == Commit::done) return Grant::granted;
  const std::uint64_t now = coarse_ms();
  std::atomic<std::uint64_t> &thorough_ms = process->devices[dev].thorough_ms;
  if (now - thorough_ms.load(memory_order_relaxed) >= kThoroughIntervalMs) {
    thorough_ms.store(now, memory_order_relaxed);
    sweep_device(dev, Effort::thorough);
    if (change(*process, dev, kind, growth) == Commit::done) return Grant::granted;
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

void Rank::release(unsigned dev, Kind kind, std::uint64_t bytes) { give_back(dev, kind, {false, units_for(bytes)}); }

void Rank::take_back(unsigned dev, Kind kind, std::uint64_t bytes) {
  give_back(dev, kind, {.grow = false, .units = units_for(bytes), .never_was = true});
}

void Rank::give_back(unsigned dev, Kind kind, const Change &shrinking) {
  // A child that frees what its parent allocated has nothing here to give back.
  if (process_->owner.load(memory_order_acquire) == 0) return;
  Process *process = attached();
  if (process != nullptr) change(*process, dev, kind, shrinking);
}

// Five looks into /proc, which say the same for as long as the process lives.
SelfIdentity Rank::self() {
  ScopedLock lock(process_->mutex);
  if (process_->self.pid == 0) process_->self = identify_self();
  return process_->self;
}

void Rank::sweep_device(unsigned dev, Effort effort) {
  LivenessCheck liveness(region_->usage_path(), region_->usage(), effort, self());
  sweep(region_->usage(), liveness, dev);
}

std::uint64_t Rank::memory_used(unsigned dev) {
  const std::uint64_t used = region_->memory_used(dev);
  Process::Device &device = process_->devices[dev];
  if (memory_held(dev) == used) return used;  // all of it is ours

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
  if (slot() == kRootSlot) return 0;
  return bytes_of(held_units(*process_, dev));
}

std::uint64_t Rank::memory_held(unsigned dev, Kind kind) const {
  const unsigned own = slot();
  if (own == kRootSlot) return 0;
  // Acquire: others may have changed it.
  const Word &current = region_->usage().lane(lane_number(own, static_cast<unsigned>(kind)), dev).current;
  return bytes_of(LaneWord::unpack(current.load(memory_order_acquire)).units);
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
    if (memory_held(dev) == 0) continue;
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
