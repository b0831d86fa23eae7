#include "bucket.h"

#include <algorithm>

#include "region/sm_words.h"

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

// A rank counts itself once in a period of 2^28 ns, 268 ms, and is forgotten after the period that follows. Shorter
// than the pauses between a rank's launches (1 ms), ranks miss each other in the count and stop yielding: in the model
// (tests/sm) ranks of 20 ms kernels then differ by up to a fifth. Longer: ranks go on yielding, kYieldNs at a time, to
// one that died or has nothing more to launch.
constexpr unsigned kPeriodShift = 28;

// Relaxed throughout: each word is a number of its own, and publishes nothing else.

}  // namespace

unsigned contenders(region::DeviceUsage &device, RankShare &rank_share, std::uint64_t now_ns) {
  const auto period = static_cast<std::uint32_t>(now_ns >> kPeriodShift);
  std::uint64_t word = device.contenders.load(memory_order_relaxed);
  for (;;) {
    region::ContendersWord seen = region::ContendersWord::unpack(word);
    if (seen.period != period) {
      seen = {0, seen.period + 1 == period ? seen.count : 0, period};
    } else if (rank_share.period.load(memory_order_relaxed) == period) {
      return static_cast<unsigned>(std::clamp<std::uint64_t>(std::max(seen.count, seen.before), 1, region::kSlots));
    }
    ++seen.count;
    if (!device.contenders.compare_exchange_weak(word, seen.pack(), memory_order_relaxed)) continue;
    rank_share.period.store(period, memory_order_relaxed);
    word = seen.pack();
  }
}

bool has_contenders(const region::DeviceUsage &device) {
  const region::ContendersWord seen = region::ContendersWord::unpack(device.contenders.load(memory_order_relaxed));
  return std::max(seen.count, seen.before) > 1;
}

BudgetGrant take_budget(region::DeviceUsage &device, RankShare &rank_share, const ChargeRate &rate,
                        const BudgetRequest &request, std::uint64_t now_ns) {
  const unsigned ranks = contenders(device, rank_share, now_ns);
  const std::uint64_t own = ranks > 1 ? rank_share.own_tat.load(memory_order_relaxed) : 0;
  const std::uint64_t saved_from = now_ns - (request.known ? kBurstNs : 0);
  const std::uint64_t step = rate.tat_step(request.cost_ns);

  std::uint64_t tat = device.tat.load(memory_order_relaxed);
  std::uint64_t next;
  do {
    std::uint64_t start = tat > now_ns + region::kLargestDebtNs ? now_ns : tat;
    // A rank that had its part already comes after the others, or when no other rank came.
    std::uint64_t conforms = start;
    if (own > now_ns && own < now_ns + region::kLargestDebtNs)
      conforms = std::max(start, std::min(own, start + kYieldNs));
    if (conforms > now_ns) return {false, conforms};
    start = std::max(start, saved_from);
    next = start + step;
  } while (!device.tat.compare_exchange_weak(tat, next, memory_order_relaxed));

  if (ranks > 1) {
    rank_share.own_tat.store(std::max(own, now_ns - kBurstNs) + step * ranks, memory_order_relaxed);
  }
  device.charged_ns.fetch_add(request.cost_ns, memory_order_relaxed);
  return {true, 0};
}

void correct(region::DeviceUsage &device, const ChargeRate &rate, std::int64_t cost_ns) {
  if (cost_ns == 0) return;
  const bool more = cost_ns > 0;
  const auto amount = static_cast<std::uint64_t>(more ? cost_ns : -cost_ns);
  const std::uint64_t step = rate.tat_step(amount);
  // Not below 0, where it would wrap into the far future. How far back it lies is of no matter: take_budget() counts
  // any `tat` older than kBurstNs as that old.
  std::uint64_t tat = device.tat.load(memory_order_relaxed);
  while (!device.tat.compare_exchange_weak(tat, more ? tat + step : tat - std::min(tat, step), memory_order_relaxed)) {
  }
  device.charged_ns.fetch_add(more ? amount : std::uint64_t{0} - amount, memory_order_relaxed);
}

}  // namespace vgpu::sm
