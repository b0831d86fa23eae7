// Rank: idle blocks, contexts, leases and exports. All of it lies in the appendix: in a region without one nothing is kept
// idle, nobody is elected and nothing is said about exports.
#include <algorithm>

#include "base/clock.h"
#include "correct.h"
#include "lease.h"
#include "rank_process.h"

namespace vgpu::region {

namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

constexpr unsigned kMostIdle = 2;  // blocks: one ahead, and one that is emptied and filled again and again
constexpr std::uint64_t kLookingMs = 500;

// More than bare contexts take on devices known so far (107 to 616 MiB), but not most of a small one.
constexpr std::uint64_t kCautiousContext = 640 << 20;
constexpr std::uint64_t kCautiousShare = 8;

}  // namespace

// ---- idle blocks ----------------------------------------------------------------------------------------------------

bool Rank::use_idle(unsigned dev, std::uint64_t block_bytes, bool *was_last) {
  const Usage &usage = region_->usage();
  Process *process = attached();
  if (process == nullptr || !usage.has_appendix()) return false;
  const GuardedLane lane = {dev, process->slot, Guarded::other};
  const std::uint64_t units = units_for(block_bytes);
  std::uint64_t idle = 0;
  Moved moved = use_idle_units(usage, lane, units, &idle);
  if (moved == Moved::closed) {
    ScopedLock lock(process->devices[dev].mutex);
    idle = close_guard(usage, lane);
    moved = idle >= units ? Moved::yes : Moved::no;
    open_guard(usage, lane, idle >= units ? idle - units : idle);
  }
  if (was_last != nullptr) *was_last = idle < 2 * units;
  return moved == Moved::yes;
}

void Rank::add_idle(unsigned dev, std::uint64_t block_bytes) {
  const Usage &usage = region_->usage();
  // A child that frees what its parent allocated has nothing here to give back.
  if (process_->owner.load(memory_order_acquire) == 0) return;
  Process *process = attached();
  if (process == nullptr) return;
  if (!usage.has_appendix()) return release(dev, Kind::other, block_bytes);
  const GuardedLane lane = {dev, process->slot, Guarded::other};
  const std::uint64_t units = units_for(block_bytes);
  std::uint64_t idle = 0;
  bool keep = add_idle_units(usage, lane, units, kMostIdle * units, &idle) == Moved::yes;
  if (!keep) {
    ScopedLock lock(process->devices[dev].mutex);
    idle = close_guard(usage, lane);
    keep = idle + units <= kMostIdle * units;
    open_guard(usage, lane, keep ? idle + units : idle);
  }
  // The peaks as they were before. A block that is filled and emptied again and again has been seen, and no word is touched
  // that others write.
  Process::Device &device = process->devices[dev];
  const Word &current = usage.lane(lane.number(), dev).current;
  const std::uint64_t other = LaneWord::unpack(current.load(memory_order_relaxed)).units;
  const std::uint64_t in_use = other - std::min(other, idle);
  if (device.grown.load(memory_order_relaxed) || in_use > device.noted_in_use.load(memory_order_relaxed)) {
    device.grown.store(false, memory_order_relaxed);
    device.noted_in_use.store(in_use, memory_order_relaxed);
    const std::uint64_t total = DeviceWord::unpack(usage.device(dev).total.load(memory_order_relaxed)).units;
    raise_peaks(*process, dev, total, held_units(*process, dev), idle);
  }
  if (!keep) release(dev, Kind::other, block_bytes);
}

bool Rank::top_up_idle(unsigned dev, std::uint64_t block_bytes) {
  const Usage &usage = region_->usage();
  Process *process = attached();
  if (process == nullptr || !usage.has_appendix()) return false;
  const GuardedLane lane = {dev, process->slot, Guarded::other};
  const std::uint64_t units = units_for(block_bytes);
  ScopedLock lock(process->devices[dev].mutex);
  std::uint64_t idle = close_guard(usage, lane);
  bool enough = idle >= units;
  if (!enough) {
    enough = change_lane(usage, dev, {lane.number(), true, units, &region_->device(dev).memory_bytes}).commit ==
             Commit::done;
    if (enough) idle += units;
    process->devices[dev].grown.store(true, memory_order_relaxed);
  }
  open_guard(usage, lane, idle);
  return enough;
}

std::uint64_t Rank::idle(unsigned dev) const {
  const Usage &usage = region_->usage();
  const unsigned own = slot();
  if (own == kRootSlot || !usage.has_appendix()) return 0;
  return bytes_of(idle_units_of(usage, {dev, own, Guarded::other}));
}

std::uint64_t Rank::give_up_idle(unsigned dev) {
  const Usage &usage = region_->usage();
  if (!usage.has_appendix()) return 0;
  std::uint64_t units = 0;
  for (unsigned slot = kRootSlot + 1; slot < kSlots; ++slot) {
    const std::uint64_t owner = usage.owner(slot).load(memory_order_acquire);
    if (OwnerWord::unpack(owner).state != OwnerWord::kFree) units += steal_idle_units(usage, dev, slot);
  }
  return bytes_of(units);
}

// ---- contexts -------------------------------------------------------------------------------------------------------

ContextFigure Rank::context_figure(unsigned dev) const {
  const DeviceLimits &device = region_->device(dev);
  const ContextFigure known = known_context(device);
  if (known.source >= ContextSource::measured) return known;
  const std::uint64_t memory = device.identity.memory_bytes;
  // Relaxed: a number of its own. The job's user can write there what they like, so it must make sense.
  const std::uint64_t seen = region_->usage().device(dev).context_units.load(memory_order_relaxed);
  if (seen != 0 && seen <= units_for(memory)) return {bytes_of(seen), ContextSource::measured};
  if (known.bytes != 0) return known;
  const std::uint64_t share = memory != 0 ? memory / kCautiousShare : kCautiousContext;
  const std::uint64_t block = region_->block_bytes(dev);
  const std::uint64_t blocks = (std::min(share, kCautiousContext) + block - 1) / block;
  return {std::max<std::uint64_t>(blocks, 1) * block, ContextSource::cautious};
}

void Rank::note_context(unsigned dev, std::uint64_t bytes) {
  region_->usage().device(dev).context_units.store(units_for(bytes), memory_order_relaxed);
}

void Rank::begin_context(unsigned dev) {
  Process *process = attached();
  if (process == nullptr || !region_->usage().has_appendix()) return;
  ScopedLock lock(process->devices[dev].mutex);
  ++process->devices[dev].contexts_in_progress;
  close_guard(region_->usage(), {dev, process->slot, Guarded::context});
}

void Rank::end_context(unsigned dev) {
  Process *process = attached();
  if (process == nullptr || !region_->usage().has_appendix()) return;
  ScopedLock lock(process->devices[dev].mutex);
  unsigned &in_progress = process->devices[dev].contexts_in_progress;
  // 0: the process forked within the call.
  if (in_progress == 0 || --in_progress > 0) return;
  open_guard(region_->usage(), {dev, process->slot, Guarded::context}, 0);
}

// ---- leases ---------------------------------------------------------------------------------------------------------

bool Rank::take_probe(unsigned dev, unsigned ms) {
  const unsigned own = slot();
  if (own == kRootSlot || !region_->usage().has_appendix()) return true;
  return take_lease(region_->usage().device_more(dev).prober, own, ms, coarse_ms());
}

void Rank::end_probe(unsigned dev) {
  if (region_->usage().has_appendix()) end_lease(region_->usage().device_more(dev).prober, slot());
}

bool Rank::lead_looking(unsigned dev) {
  const unsigned own = slot();
  if (own == kRootSlot || !region_->usage().has_appendix()) return false;
  return take_lease(region_->usage().device_more(dev).looker, own, kLookingMs, coarse_ms());
}

// ---- exports --------------------------------------------------------------------------------------------------------

void Rank::note_exported(unsigned dev, std::int64_t bytes) {
  Process *process = attached();
  if (process == nullptr || !region_->usage().has_appendix()) return;
  Word &exported = region_->usage().slot_more(process->slot, dev).exported_units;
  const std::uint64_t units = units_for(static_cast<std::uint64_t>(bytes < 0 ? -bytes : bytes));
  ScopedLock lock(process->devices[dev].mutex);
  const std::uint64_t before = exported.load(memory_order_relaxed);
  // Release: whoever sees it also sees the charge, which came before.
  exported.store(bytes < 0 ? before - std::min(before, units) : before + units, memory_order_release);
}

void Rank::note_imported(unsigned dev, std::uint64_t bytes) {
  Process *process = attached();
  if (process == nullptr || !region_->usage().has_appendix()) return;
  region_->usage().slot_more(process->slot, dev).imported_units.store(units_for(bytes), memory_order_release);
}

std::uint64_t Rank::exported_by_others(unsigned dev) const { return exported_beside(region_->usage(), dev, slot()); }

std::uint64_t Rank::counted_twice(unsigned dev) const {
  return slot() != kRootSlot ? region::counted_twice(region_->usage(), dev, slot()) : 0;
}

}  // namespace vgpu::region
