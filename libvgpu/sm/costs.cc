#include "costs.h"

#include <algorithm>

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

constexpr std::uint64_t kFarOut = 4;
constexpr std::uint64_t kRevision = 8;
constexpr std::uint64_t kPatience = 16;  // launches
constexpr std::uint64_t kLastGuessNs = 200'000;
constexpr std::uint64_t kTooShortNs = 1'000;
constexpr std::uint64_t kArrivalNs = 500;
constexpr std::uint64_t kDisturbedNs = 10'000;  // no call takes so long

// Early measurements count in full, later ones less: at first an average, then a slowly moving one.
std::uint64_t moved(std::uint64_t mean, std::uint64_t value, std::uint32_t count, std::uint32_t most) {
  const std::int64_t difference = static_cast<std::int64_t>(value) - static_cast<std::int64_t>(mean);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(mean) + difference / std::min(count, most));
}

}  // namespace

// The time between the events is the host's as well: an idle device takes the first one at once and then waits for the
// launch, and if it is done before the host asks for the second one it waits for that, too.
std::uint64_t device_time(const HostSide &host, std::uint64_t elapsed_ns, std::uint64_t known_ns) {
  if (!host.idle) return elapsed_ns;
  const auto without = [&](std::uint64_t waited_ns) { return elapsed_ns - std::min(waited_ns, elapsed_ns); };
  const std::uint64_t behind = host.closed_ns - host.launched_ns;
  const std::uint64_t least = behind > kDisturbedNs ? 0 : without(host.launched_ns - host.opened_ns);
  const std::uint64_t most = without(host.ready_ns - (host.was_idle ? host.recorded_ns : host.ready_ns));
  // Where the host was interrupted, or the device came to its end of work at some time since the first event, that is
  // all there is to say; and nothing against what is known, if that is in between.
  if (!host.was_idle || most - least > kDisturbedNs) return std::clamp(known_ns != 0 ? known_ns : most, least, most);
  // Somewhere in the call that takes the event, and near the end of the one that launches.
  const std::uint64_t stamped = (host.opened_ns + host.recorded_ns) / 2;
  const std::uint64_t arrived = host.launched_ns - std::min((host.launched_ns - host.ready_ns) / 2, kArrivalNs);
  const std::uint64_t rest = without(arrived - stamped);
  // Anything up to `rest`: such launches are too short to keep a device busy one by one.
  return rest > behind + kTooShortNs ? rest : rest / 4;
}

Cost &Costs::look_for(std::uint64_t key, std::uint64_t family_key) {
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Cost &cost = entries_[(place(key) + probe) & ((1u << kBits) - 1)];
    std::uint64_t seen = cost.key.load(memory_order_relaxed);
    if (seen == key) return cost;
    if (seen != 0 || !cost.key.compare_exchange_strong(seen, key, memory_order_relaxed)) continue;
    if (key != family_key) cost.family.store(&look_for(family_key, family_key), memory_order_relaxed);
    return cost;
  }
  return entries_[place(key)];
}

std::uint64_t Costs::estimate(const Cost &cost) {
  const std::uint64_t known = cost.estimate_ns.load(memory_order_relaxed);
  const Cost *family = cost.family.load(memory_order_relaxed);
  return known != 0 || family == nullptr ? known : family->estimate_ns.load(memory_order_relaxed);
}

std::uint64_t Costs::guess(const Cost &cost, std::uint64_t now_ns) {
  // It cannot be measured at all: NVML has to put this right.
  if (cost.guessed.load(memory_order_relaxed) >= kPatience && cost.under_way.load(memory_order_relaxed) == 0) {
    return kLastGuessNs;
  }
  // It takes at least as long as it has been under way.
  const std::uint64_t since = cost.guessed_at_ns.load(memory_order_relaxed);
  const std::uint64_t least = since != 0 && since < now_ns ? now_ns - since : 0;
  return std::clamp(least, kFirstGuessNs, kLargestCostNs);
}

void Costs::note_guess(Cost &cost, std::uint64_t guess_ns, std::uint64_t now_ns) {
  cost.guessed_ns.fetch_add(guess_ns, memory_order_relaxed);
  cost.guessed.fetch_add(1, memory_order_relaxed);
  std::uint64_t nothing = 0;
  cost.guessed_at_ns.compare_exchange_strong(nothing, now_ns, memory_order_relaxed);
}

std::int64_t Costs::learn(Cost &cost, const Measurement &measured) {
  const std::uint64_t elapsed = std::clamp(measured.elapsed_ns, kLeastCostNs, kLargestCostNs);
  const bool first = cost.estimate_ns.load(memory_order_relaxed) == 0;
  // What is known of it decided whether it was alone: nothing was known of the first.
  const bool alone = measured.alone && !first;

  const std::uint32_t samples = cost.samples.load(memory_order_relaxed);
  std::uint64_t least = cost.least_ns.load(memory_order_relaxed);
  if (samples % kWindow == 0) {
    cost.least_before_ns.store(least, memory_order_relaxed);
    least = elapsed;
  }
  least = std::min(least, elapsed);
  cost.least_ns.store(least, memory_order_relaxed);
  cost.samples.store(samples + 1, memory_order_relaxed);

  const std::uint64_t before = cost.least_before_ns.load(memory_order_relaxed);
  const std::uint64_t lowest = before != 0 ? std::min(least, before) : least;

  // Those that were alone, as soon as there are any; until then what about half of all exceed. That is too much, if
  // anything; so launches are kept farther apart than they need be, and soon there are some that were alone. Too little
  // would not put itself right.
  std::uint32_t alone_before = cost.alone.load(memory_order_relaxed);
  std::uint64_t mean = cost.mean_ns.load(memory_order_relaxed);
  std::uint64_t counted = elapsed;
  if (alone) {
    // Now and then something was in its way after all.
    if (alone_before != 0) counted = std::min(counted, kFarOut * mean);
    if (alone_before++ == 0) mean = counted;
    mean = moved(mean, counted, alone_before, 16);
    cost.alone.store(alone_before, memory_order_relaxed);
  } else if (alone_before == 0) {
    mean = samples == 0 ? elapsed : std::clamp(elapsed, mean - mean / 16, mean + mean / 24);
  }
  cost.mean_ns.store(mean, memory_order_relaxed);

  const std::uint64_t estimate = measured.shared ? lowest : mean;
  cost.estimate_ns.store(estimate, memory_order_relaxed);
  const std::uint64_t reference = cost.reference_ns.load(memory_order_relaxed);
  if (estimate > reference + reference / kRevision || estimate < reference - reference / kRevision) {
    cost.reference_ns.store(estimate, memory_order_relaxed);
    revisions_.fetch_add(1, memory_order_relaxed);
  }
  if (alone_before >= 2 || samples + 1 >= kEnough) cost.settled_ns.store(estimate, memory_order_relaxed);

  if (Cost *family = cost.family.load(memory_order_relaxed)) {
    const std::uint64_t known = family->estimate_ns.load(memory_order_relaxed);
    family->estimate_ns.store(known == 0 ? elapsed : moved(known, estimate, 4, 4), memory_order_relaxed);
  }
  const std::uint64_t typical = typical_ns_.load(memory_order_relaxed);
  typical_ns_.store(typical == 0 ? elapsed : moved(typical, elapsed, 8, 8), memory_order_relaxed);

  if (first) {
    cost.guessed_at_ns.store(0, memory_order_relaxed);
    const std::uint64_t count = cost.guessed.exchange(0, memory_order_relaxed);
    const std::uint64_t charged = cost.guessed_ns.exchange(0, memory_order_relaxed);
    return static_cast<std::int64_t>(elapsed * count) - static_cast<std::int64_t>(charged);
  }
  if (!alone || measured.shared) return 0;
  return static_cast<std::int64_t>(counted) - static_cast<std::int64_t>(measured.charged_ns);
}

}  // namespace vgpu::sm
