#include "bucket.h"

#include <algorithm>

#include "region/sm_words.h"

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

constexpr unsigned kPeriodShift = 28;  // of nanoseconds: 268 ms

// Relaxed throughout: each word is a number of its own, and nothing else is published by it.
void occupy(region::Word &busy_until, std::uint64_t now_ns, std::uint64_t work_ns) {
  std::uint64_t before = busy_until.load(memory_order_relaxed);
  std::uint64_t from;
  do {
    from = before > now_ns + region::kLargestDebtNs ? now_ns : std::max(before, now_ns);
  } while (!busy_until.compare_exchange_weak(before, from + work_ns, memory_order_relaxed));
}

}  // namespace

unsigned contenders(region::DeviceUsage &device, Standing &standing, std::uint64_t now_ns) {
  const auto period = static_cast<std::uint32_t>(now_ns >> kPeriodShift);
  std::uint64_t word = device.contenders.load(memory_order_relaxed);
  for (;;) {
    region::ContendersWord seen = region::ContendersWord::unpack(word);
    if (seen.period != period) {
      seen = {0, seen.period + 1 == period ? seen.count : 0, period};
    } else if (standing.period.load(memory_order_relaxed) == period) {
      return static_cast<unsigned>(std::clamp<std::uint64_t>(std::max(seen.count, seen.before), 1, region::kSlots));
    }
    ++seen.count;
    if (!device.contenders.compare_exchange_weak(word, seen.pack(), memory_order_relaxed)) continue;
    standing.period.store(period, memory_order_relaxed);
    word = seen.pack();
  }
}

Taken take(region::DeviceUsage &device, Standing &standing, const Price &price, const Take &what,
           std::uint64_t now_ns) {
  const unsigned ranks = contenders(device, standing, now_ns);
  const std::uint64_t own = ranks > 1 ? standing.own_tat.load(memory_order_relaxed) : 0;
  const std::uint64_t saved_from = now_ns - (what.known ? kBurstNs : 0);
  const std::uint64_t step = price.of(what.cost_ns);
  const bool quiet = device.busy_until.load(memory_order_relaxed) <= now_ns;

  std::uint64_t tat = device.tat.load(memory_order_relaxed);
  std::uint64_t next, held;
  do {
    std::uint64_t start = tat > now_ns + region::kLargestDebtNs ? now_ns : tat;
    // A rank that had its part already comes after the others, or when nobody else came.
    std::uint64_t turn = start;
    if (own > now_ns && own < now_ns + region::kLargestDebtNs)
      turn = std::max(start, std::min(own, start + kPatienceNs));
    if (turn > now_ns) return {false, turn};
    start = std::max(start, saved_from);
    next = start + step;
    const bool holds = what.measured && quiet && ranks > 1 && next < now_ns + what.first_ns;
    held = holds ? now_ns + what.first_ns - next : 0;
  } while (!device.tat.compare_exchange_weak(tat, next + held, memory_order_relaxed));

  if (ranks > 1) {
    standing.own_tat.store(std::max(own, now_ns - kBurstNs) + step * ranks, memory_order_relaxed);
  }
  device.charged_ns.fetch_add(what.cost_ns, memory_order_relaxed);
  occupy(device.busy_until, now_ns, price.trimmed(what.work_ns));
  return {true, 0, quiet && (ranks == 1 || next + held >= now_ns + what.first_ns), held};
}

void let_go(region::DeviceUsage &device, std::uint64_t held_ns) {
  if (held_ns != 0) device.tat.fetch_sub(held_ns, memory_order_relaxed);
}

void correct(region::DeviceUsage &device, const Price &price, std::int64_t cost_ns) {
  if (cost_ns == 0) return;
  const bool more = cost_ns > 0;
  const auto amount = static_cast<std::uint64_t>(more ? cost_ns : -cost_ns);
  const std::uint64_t step = price.of(amount);
  // Wraps where it must not: a `tat` before the last burst counts as that, whatever it is.
  std::uint64_t tat = device.tat.load(memory_order_relaxed);
  while (!device.tat.compare_exchange_weak(tat, more ? tat + step : tat - std::min(tat, step), memory_order_relaxed)) {
  }
  device.charged_ns.fetch_add(more ? amount : std::uint64_t{0} - amount, memory_order_relaxed);
}

}  // namespace vgpu::sm
