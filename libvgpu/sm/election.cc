#include "election.h"

namespace vgpu::sm {

namespace {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;

// From here on the word is the new leader's, and the old one can no longer publish.
void adopt(region::Word &trim, std::uint64_t epoch) {
  std::uint64_t word = trim.load(memory_order_relaxed);
  for (;;) {
    region::TrimWord mine = region::TrimWord::unpack(word);
    mine.epoch = epoch;
    if (trim.compare_exchange_weak(word, mine.pack(), memory_order_acq_rel)) return;
  }
}

}  // namespace

LeaseClaim claim_lease(region::DeviceUsage &device, Candidate &candidate, unsigned slot, std::uint64_t now_ms) {
  std::uint64_t word = device.lease.load(memory_order_acquire);
  const region::LeaseWord lease = region::LeaseWord::unpack(word);
  const std::uint64_t now = region::LeaseWord::Stamp::get(region::LeaseWord::Stamp::put(now_ms));
  const bool mine = candidate.epoch != 0 && lease.epoch == candidate.epoch && lease.slot == slot;
  // The job's user can write anything: a stamp from the future counts as expired.
  const std::uint64_t age = lease.stamp <= now ? now - lease.stamp : kLeaseTicks * kTickMs;
  if (word != 0 && age < (mine ? kTickMs : kLeaseTicks * kTickMs)) return LeaseClaim::refused;

  region::LeaseWord next = {slot, lease.epoch, now};
  if (!mine) {
    next.epoch = (lease.epoch + 1) & region::LeaseWord::Epoch::kMask;
    if (next.epoch == 0) next.epoch = 1;
  }
  if (!device.lease.compare_exchange_strong(word, next.pack(), memory_order_acq_rel)) return LeaseClaim::refused;
  if (mine) return LeaseClaim::renewed;
  candidate.epoch = next.epoch;
  adopt(device.trim, next.epoch);
  return LeaseClaim::acquired;
}

bool publish(region::DeviceUsage &device, const Candidate &candidate, std::uint64_t ratio, bool shared) {
  std::uint64_t word = device.trim.load(memory_order_acquire);
  if (region::TrimWord::unpack(word).epoch != candidate.epoch) return false;
  const region::TrimWord next = {ratio, shared, candidate.epoch};
  return device.trim.compare_exchange_strong(word, next.pack(), memory_order_acq_rel);
}

}  // namespace vgpu::sm
