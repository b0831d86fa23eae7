// One rank at a time, for a while: a lease ends by itself, so that nobody waits for a rank that died or was stopped.
#pragma once

#include "layout.h"
#include "sm_words.h"

namespace vgpu::region {

// True: it is `slot`'s for the next `ms`, also if it was before.
inline bool take_lease(Word &word, unsigned slot, std::uint64_t ms, std::uint64_t now_ms) {
  // Relaxed: who has it decides who does the work, and guards nothing.
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  const LeaseWord lease = LeaseWord::unpack(seen);
  const std::uint64_t now = LeaseWord::Stamp::get(LeaseWord::Stamp::put(now_ms));
  // The job's user can write anything: a stamp from the future has expired.
  const bool expired = lease.stamp == 0 || lease.stamp > now || now - lease.stamp >= ms;
  if (!expired && lease.slot != slot) return false;
  return word.compare_exchange_strong(seen, LeaseWord{slot, 0, now}.pack(), std::memory_order_relaxed);
}

inline void end_lease(Word &word, unsigned slot) {
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  if (LeaseWord::unpack(seen).slot == slot) word.compare_exchange_strong(seen, 0, std::memory_order_relaxed);
}

}  // namespace vgpu::region
