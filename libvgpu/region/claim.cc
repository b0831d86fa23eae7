#include "claim.h"

#include "steps.h"
#include "sweep.h"

namespace vgpu::region {

namespace {

// The token first, then the slot: a slot never looks owned by a rank whose token is still free.
bool claim_one(const Usage &usage, TokenTaker &taker, unsigned slot, OwnerWord owner, Claim *claim) {
  std::uint64_t word = usage.owner(slot).load(std::memory_order_acquire);
  if (OwnerWord::unpack(word).state != OwnerWord::kFree) return false;

  const TokenResult token = taker.take(slot);
  if (token == TokenResult::busy) return false;  // another attacher is ahead of us
  VGPU_STEP(attach_token_taken);
  void *page = token == TokenResult::taken ? taker.keep() : nullptr;  // stays mapped until the process ends
  owner.locked = page != nullptr ? 1 : 0;
  owner.gen = OwnerWord::Gen::get(word);
  // Acquire: pairs with the reclaimer that emptied the lanes. Release: sweepers see our token taken.
  if (!usage.owner(slot).compare_exchange_strong(word, owner.pack(), std::memory_order_acq_rel)) {
    drop_token(page);
    if (token == TokenResult::taken) taker.give_back(slot);
    return false;
  }
  VGPU_STEP(attach_claimed);
  usage.suspect(slot).store(0, std::memory_order_relaxed);
  VGPU_STEP(attach_suspect_cleared);
  usage.claim_hint().store(slot + 1, std::memory_order_relaxed);
  claim->slot = slot;
  claim->owner = owner.pack();
  return true;
}

}  // namespace

Claim claim_slot(const Region &region) {
  const Usage &usage = region.usage();
  const SelfIdentity self = identify_self();
  OwnerWord owner;
  owner.state = OwnerWord::kActive;
  owner.pid = static_cast<std::uint64_t>(self.pid);
  owner.start = self.start_time & OwnerWord::Start::kMask;
  // Without a start time nobody may judge us by our PID, which can be another process's tomorrow.
  owner.ns = self.start_time != 0 ? enter_namespace(usage, self.namespaces) : kUnknownNamespace;

  LivenessCheck liveness(region.usage_path(), usage, Effort::thorough, self);
  for (unsigned slot = kRootSlot + 1; slot < kSlots; ++slot) {
    const std::uint64_t word = usage.owner(slot).load(std::memory_order_acquire);
    if (OwnerWord::unpack(word).state != OwnerWord::kFree && liveness.is_my_former_image(slot, word)) {
      reclaim(usage, slot, word);
    }
  }

  Claim claim;
  claim.start_time = self.start_time;
  TokenTaker taker(region.usage_path());
  if (!taker.has_file() && self.start_time == 0) {
    // Nobody could ever tell that this process is gone: what it held would stay counted for good.
    claim.fault = Fault::system;
    return claim;
  }
  constexpr unsigned kRankSlots = kSlots - 1;
  for (int round = 0; round < 2; ++round) {
    const unsigned hint = usage.claim_hint().load(std::memory_order_relaxed);
    const unsigned first = hint > 0 ? hint - 1 : 0;  // a fresh region's hint is 0; slot 0 is root's
    for (unsigned i = 0; i < kRankSlots; ++i) {
      if (claim_one(usage, taker, 1 + (first + i) % kRankSlots, owner, &claim)) return claim;
    }
    sweep(usage, liveness, kAllDevices);
  }
  claim.fault = Fault::no_slot;
  return claim;
}

}  // namespace vgpu::region
