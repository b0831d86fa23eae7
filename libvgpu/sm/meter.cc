#include "meter.h"

#include <algorithm>

#include "region/sm_words.h"

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

// A ratio is believed within these bounds, whatever the job's user wrote into the word. Four times as wide as what the
// feedback publishes. Without them a ratio of nearly 0 would end the limit, and a huge one stop the job. Narrower than
// the feedback's own bounds, they would ignore its corrections.
constexpr std::uint64_t kLeastRatio = region::TrimWord::kOne / 64;
constexpr std::uint64_t kLargestRatio = region::TrimWord::kOne * 64;

ChargeRate current_rate(const region::DeviceUsage &device, std::uint32_t percent, bool *shared) {
  const region::TrimWord trim = region::TrimWord::unpack(device.trim.load(memory_order_relaxed));
  *shared = trim.shared;
  return {std::clamp(percent, 1u, 100u), std::clamp(trim.ratio, kLeastRatio, kLargestRatio)};
}

}  // namespace

Decision decide(region::DeviceUsage &device, Meter &meter, Cost &cost, LaunchCredit &credit, std::uint32_t percent,
                std::uint64_t now_ns) {
  bool shared;
  const ChargeRate rate = current_rate(device, percent, &shared);
  const std::uint64_t estimate = Costs::estimate(cost);
  const bool known = estimate != 0;
  const bool settled = cost.settled_ns.load(memory_order_relaxed) != 0;
  const std::uint64_t own = known ? estimate : Costs::guess(cost, now_ns);

  // Whole launches: a remainder would pay for one later, when another rank has the device.
  const std::uint64_t wanted = settled ? own * std::max<std::uint64_t>(kCreditBatchNs / own, 1) : own;
  // What is not settled yet is measured with every launch, but only one at a time, as they would delay each other.
  const bool due = settled ? now_ns - meter.measured_ns.load(memory_order_relaxed) >= kMeasureEveryNs
                           : cost.under_way.load(memory_order_relaxed) == 0;
  const BudgetRequest request = {wanted > credit.remaining_ns ? wanted - credit.remaining_ns : 0, own,
                                 std::max(wanted, credit.remaining_ns), known, due};
  const BudgetGrant grant = take_budget(device, meter.rank_share, rate, request, now_ns);
  if (!grant.granted) return {false, grant.until_ns};
  credit.remaining_ns = credit.remaining_ns + request.cost_ns - own;
  ++credit.launches;
  if (!known) Costs::note_guess(cost, own, now_ns);
  if (due) meter.measured_ns.store(now_ns, memory_order_relaxed);
  return {true, 0, own, due, grant.alone, grant.held_ns};
}

bool learn(region::DeviceUsage &device, Costs &costs, Cost &cost, Measurement measured, std::uint32_t percent) {
  const ChargeRate rate = current_rate(device, percent, &measured.shared);
  const std::int64_t difference = costs.learn(cost, measured);
  correct(device, rate, difference);
  return difference < -static_cast<std::int64_t>(kCreditBatchNs);
}

void cancel(region::DeviceUsage &device, Cost &cost, std::uint64_t charged_ns, bool guessed, std::uint32_t percent) {
  bool shared;
  if (guessed) Costs::forget_guess(cost, charged_ns);
  correct(device, current_rate(device, percent, &shared), -static_cast<std::int64_t>(charged_ns));
}

void give_back(region::DeviceUsage &device, LaunchCredit &credit, std::uint32_t percent) {
  bool shared;
  correct(device, current_rate(device, percent, &shared), -static_cast<std::int64_t>(credit.remaining_ns));
  credit.remaining_ns = 0;
}

}  // namespace vgpu::sm
