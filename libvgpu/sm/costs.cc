#include "costs.h"

#include <algorithm>

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

// A measurement that was taken for alone counts as at most this many times the mean: now and then other work was on the
// device after all, and its 20 ms would be a thousand launches of 20 us. Absent, a single one would make such a kernel
// cost more than 1 ms (costs_test). Smaller: kernels whose duration really varies that much are charged too little.
// Larger: each one moves the mean further.
constexpr std::uint64_t kOutlierFactor = 4;
// An estimate that moved by more than an eighth is a revision, and makes the comparison with NVML start anew
// (feedback.h). Absent, NVML's reports of launches that were charged an old cost would change the ratio of the new one.
// A larger part: the ratio is learned across costs that have changed; a half does better in the model's random mixes,
// but was taken back, with another change, because it misjudged a busy machine (git log -S kRevision). A smaller part:
// a mean that drifts by little keeps the comparison from ever having seen enough.
constexpr std::uint64_t kRevisionPart = 8;
// So many launches are charged the first guess without any of them being measured; then it is taken for something that
// cannot be measured. Absent, a launch whose events fail would be charged 25 ms for ever, and the program stand nearly
// still. Smaller: a thread that found all timers in use a few times would pay the last guess for a kernel of any
// length.
constexpr std::uint64_t kMostGuesses = 16;
// What a launch is charged that cannot be measured. A middling kernel, which NVML's ratio then corrects within its
// bounds, a sixteenth to sixteen times (feedback.cc): right for what really takes 12 us to 3 ms, a range that a smaller
// or larger value would move.
constexpr std::uint64_t kUnmeasuredNs = 200'000;
// On an idle device a launch that seems no longer than the call that records the second event, and this, was probably
// done before that event came: what was measured is the host's call. It is charged a part of it, as such launches are
// too short to keep a device busy one by one. Without the allowance the call's own variation counts as the device's
// time; with a larger one, launches of several microseconds are charged too little. In full, they would be charged for
// an idle device.
constexpr std::uint64_t kTooShortNs = 1'000;
constexpr std::uint64_t kTooShortPart = 4;
// A launch reaches the device near the end of the call that launches, at most this long before its return. Larger, and
// half a long call counts as the device's; 0, and none of it, which makes launches of some microseconds too cheap.
constexpr std::uint64_t kArrivalNs = 500;
// Calls around a launch that take longer were interrupted: recording an event and launching take less. Then the
// measurement only says between which bounds the launch can be. Smaller: slow calls are taken for interruptions, and
// costs stay as they first were. Larger: the time for which the host lost its core counts as the device's.
constexpr std::uint64_t kInterruptedNs = 10'000;
// The mean of measurements that were alone becomes a moving one after this many. Smaller: the mean of a kernel whose
// duration varies drifts, each time by a revision. Larger: it follows a kernel that became slower more slowly. (In the
// model neither 4 nor 64 makes much of a difference.)
constexpr std::uint32_t kMeanWeight = 16;
// So many that were alone settle an estimate. With one, a single measurement that was not alone after all sets the
// cost; with more, a kernel is paid from a credit later. (In the model neither 1 nor 8 makes a difference.)
constexpr std::uint32_t kEnoughAlone = 2;
// Until one was alone, the estimate follows the median: down by at most a sixteenth at a time, up by at most a 24th.
// Unequal, because such measurements are too long if anything: with 16 both ways, twice as many of the model's random
// mixes (23 of 200) get less than 95 % of their share. Larger steps follow each measurement; without any the first
// measurement would count until one was alone, and some mixes get 5 points too much.
constexpr std::uint64_t kMedianDown = 16, kMedianUp = 24;
// How much of the family's estimate (the same function in any size) the latest cost is: one part in this many. It
// stands in for sizes that are new. With 1 it would be whatever size was last measured; larger, it does not follow a
// program whose sizes grow. Without a family every new size would be charged kFirstGuessNs.
constexpr std::uint32_t kFamilyWeight = 4;
// The same for typical_ns(), from which feedback.cc takes how much a launch at the edge of a window can shift. With 1
// it would be the last measured launch, whichever that was; larger, it does not follow a program that goes on to other
// kernels. (The model shows no difference between 1 and 64.)
constexpr std::uint32_t kTypicalWeight = 8;

// Early measurements count in full, later ones less: at first an average, then a slowly moving one.
std::uint64_t moved(std::uint64_t mean, std::uint64_t value, std::uint32_t count, std::uint32_t most) {
  const std::int64_t difference = static_cast<std::int64_t>(value) - static_cast<std::int64_t>(mean);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(mean) + difference / std::min(count, most));
}

}  // namespace

// The time between the events is partly the host's: an idle device records the first one at once and then waits for the
// launch, and if it is done before the host records the second one, it waits for that, too.
std::uint64_t device_time(const HostTimeline &host, std::uint64_t elapsed_ns, std::uint64_t known_ns) {
  if (!host.idle_before_launch) return elapsed_ns;
  const auto without = [&](std::uint64_t waited_ns) { return elapsed_ns - std::min(waited_ns, elapsed_ns); };
  const std::uint64_t behind = host.end_returned_ns - host.launch_returned_ns;
  const std::uint64_t least = behind > kInterruptedNs ? 0 : without(host.launch_returned_ns - host.start_called_ns);
  const std::uint64_t most =
      without(host.launch_called_ns - (host.idle_before_start ? host.start_returned_ns : host.launch_called_ns));
  // Where the host was interrupted, or the device ran out of work at some time since the first event, the bounds are
  // all that is known; an estimate between them stays as it is.
  if (!host.idle_before_start || most - least > kInterruptedNs)
    return std::clamp(known_ns != 0 ? known_ns : most, least, most);
  // The event was recorded somewhere in its call; the launch arrived near the end of its own.
  const std::uint64_t stamped = (host.start_called_ns + host.start_returned_ns) / 2;
  const std::uint64_t arrived =
      host.launch_returned_ns - std::min((host.launch_returned_ns - host.launch_called_ns) / 2, kArrivalNs);
  const std::uint64_t rest = without(arrived - stamped);
  return rest > behind + kTooShortNs ? rest : rest / kTooShortPart;
}

Cost &Costs::find_or_insert(std::uint64_t key, std::uint64_t family_key) {
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Cost &cost = entries_[(place(key) + probe) & ((1u << kBits) - 1)];
    std::uint64_t seen = cost.key.load(memory_order_relaxed);
    if (seen == key) return cost;
    if (seen != 0 || !cost.key.compare_exchange_strong(seen, key, memory_order_relaxed)) continue;
    if (key != family_key) cost.family.store(&find_or_insert(family_key, family_key), memory_order_relaxed);
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
  // It cannot be measured: the comparison with NVML has to correct this.
  if (cost.guessed.load(memory_order_relaxed) >= kMostGuesses && cost.under_way.load(memory_order_relaxed) == 0) {
    return kUnmeasuredNs;
  }
  // It takes at least as long as the launch that is being measured has been under way. Without one nothing is known, and
  // the time for which launches waited because of this guess must not become part of the next one.
  const bool under_way = cost.under_way.load(memory_order_relaxed) != 0;
  const std::uint64_t since = under_way ? cost.guessed_at_ns.load(memory_order_relaxed) : 0;
  const std::uint64_t least = since != 0 && since < now_ns ? now_ns - since : 0;
  return std::clamp(least, kFirstGuessNs, kLargestCostNs);
}

void Costs::note_guess(Cost &cost, std::uint64_t guess_ns, std::uint64_t now_ns) {
  cost.guessed_ns.fetch_add(guess_ns, memory_order_relaxed);
  cost.guessed.fetch_add(1, memory_order_relaxed);
  if (cost.under_way.load(memory_order_relaxed) == 0) cost.guessed_at_ns.store(now_ns, memory_order_relaxed);
}

void Costs::forget_guess(Cost &cost, std::uint64_t guess_ns) {
  if (cost.estimate_ns.load(memory_order_relaxed) != 0) return;
  cost.guessed_ns.fetch_sub(guess_ns, memory_order_relaxed);
  if (cost.guessed.fetch_sub(1, memory_order_relaxed) == 1) cost.guessed_at_ns.store(0, memory_order_relaxed);
}

std::int64_t Costs::learn(Cost &cost, const Measurement &measured) {
  const std::uint64_t elapsed = std::clamp(measured.elapsed_ns, kLeastCostNs, kLargestCostNs);
  const bool first = cost.estimate_ns.load(memory_order_relaxed) == 0;
  // Whether a launch was alone was decided by its estimate, and the first one had none.
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

  // The mean of those that were alone, as soon as there are any; until then the median of all. That is too much, if
  // anything; so launches are kept farther apart than they need be, and soon some are alone. Too little would not
  // correct itself.
  std::uint32_t alone_before = cost.alone.load(memory_order_relaxed);
  std::uint64_t mean = cost.mean_ns.load(memory_order_relaxed);
  std::uint64_t counted = elapsed;
  if (alone) {
    if (alone_before != 0) counted = std::min(counted, kOutlierFactor * mean);
    if (alone_before++ == 0) mean = counted;
    mean = moved(mean, counted, alone_before, kMeanWeight);
    cost.alone.store(alone_before, memory_order_relaxed);
  } else if (alone_before == 0) {
    mean = samples == 0 ? elapsed : std::clamp(elapsed, mean - mean / kMedianDown, mean + mean / kMedianUp);
  }
  cost.mean_ns.store(mean, memory_order_relaxed);

  const std::uint64_t estimate = measured.shared ? lowest : mean;
  cost.estimate_ns.store(estimate, memory_order_relaxed);
  const std::uint64_t reference = cost.reference_ns.load(memory_order_relaxed);
  if (estimate > reference + reference / kRevisionPart || estimate < reference - reference / kRevisionPart) {
    cost.reference_ns.store(estimate, memory_order_relaxed);
    revisions_.fetch_add(1, memory_order_relaxed);
  }
  if (alone_before >= kEnoughAlone || samples + 1 >= kEnough) cost.settled_ns.store(estimate, memory_order_relaxed);

  if (Cost *family = cost.family.load(memory_order_relaxed)) {
    const std::uint64_t known = family->estimate_ns.load(memory_order_relaxed);
    family->estimate_ns.store(known == 0 ? elapsed : moved(known, estimate, kFamilyWeight, kFamilyWeight),
                              memory_order_relaxed);
  }
  const std::uint64_t typical = typical_ns_.load(memory_order_relaxed);
  typical_ns_.store(typical == 0 ? elapsed : moved(typical, elapsed, kTypicalWeight, kTypicalWeight),
                    memory_order_relaxed);

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
