#include "sweep.h"

#include "accounting.h"
#include "base/clock.h"
#include "steps.h"

namespace vgpu::region {

namespace {

// Counts the grace from the first sweep that found this generation of the slot suspect, whoever swept.
bool grace_is_over(Word &suspect, std::uint64_t gen, std::uint64_t now_ms) {
  std::uint64_t word = suspect.load(std::memory_order_relaxed);
  const SuspectWord since = SuspectWord::unpack(word);
  if (since.gen == gen && since.ms != 0 && since.ms <= now_ms) return now_ms - since.ms >= kGraceMs;
  // Relaxed: a lost race leaves the other sweeper's time, which serves as well.
  suspect.compare_exchange_strong(word, SuspectWord{gen, now_ms}.pack(), std::memory_order_relaxed);
  VGPU_STEP(sweep_suspected);
  return false;
}

}  // namespace

unsigned sweep(const Usage &usage, LivenessCheck &liveness, unsigned dev) {
  unsigned freed = 0;
  for (unsigned slot = kRootSlot + 1; slot < kSlots; ++slot) {
    // Acquire: pairs with the attacher's CAS, so that the lanes we look at are not older than this owner.
    const std::uint64_t owner = usage.owner(slot).load(std::memory_order_acquire);
    if (OwnerWord::unpack(owner).state == OwnerWord::kFree) continue;
    VGPU_STEP(sweep_read_owner);
    if (dev != kAllDevices && !was_ever_used(usage, slot, dev)) continue;
    VGPU_STEP(sweep_read_lanes);

    const Verdict verdict = liveness.examine(slot, owner);
    Word &suspect = usage.suspect(slot);
    if (verdict == Verdict::alive) {
      // Or an old suspicion would make the next one count at once.
      if (suspect.load(std::memory_order_relaxed) != 0) suspect.store(0, std::memory_order_relaxed);
      continue;
    }
    const std::uint64_t gen = OwnerWord::Gen::get(owner);
    if (verdict == Verdict::dead_after_grace && !grace_is_over(suspect, gen, coarse_ms())) continue;
    if (reclaim(usage, slot, owner)) ++freed;
  }
  return freed;
}

}  // namespace vgpu::region
