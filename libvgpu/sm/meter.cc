#include "meter.h"

#include <algorithm>

#include "pace.h"
#include "region/sm_words.h"

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

// A ratio is believed within these bounds, whatever the job's user wrote into the word. Four times as wide as what the
// feedback publishes. Without them a ratio of nearly 0 would end the limit, and a huge one stop the job. Narrower than
// the feedback's own bounds, they would ignore its corrections.
constexpr std::uint64_t kLeastRatio = region::TrimWord::kOne / 64;
constexpr std::uint64_t kLargestRatio = region::TrimWord::kOne * 64;

std::uint64_t scaled(std::uint64_t ns, double factor) {
  return static_cast<std::uint64_t>(static_cast<double>(ns) * factor);
}

// Of the budget, what the thread holds.
std::uint64_t held_ns(const LaunchCredit &credit) {
  return credit.open ? credit.unspent_ns + std::min(scaled(credit.remaining_ns, credit.pace), credit.budget_ns)
                     : credit.unspent_ns;
}

}  // namespace

ChargeRate charge_rate(const region::DeviceUsage &device, std::uint32_t percent, bool *shared) {
  const region::TrimWord trim = region::TrimWord::unpack(device.trim.load(memory_order_relaxed));
  *shared = trim.shared;
  return {std::clamp(percent, 1u, 100u), std::clamp(trim.ratio, kLeastRatio, kLargestRatio)};
}

Decision decide(const JobDevice &job, Meter &meter, Costs &costs, const LaunchKey &launch, const LaunchCredit &credit,
                std::uint32_t percent, std::uint64_t now_ns) {
  bool shared;
  const ChargeRate rate = charge_rate(job.usage, percent, &shared);
  Cost &cost = costs.find_or_insert(launch.key, now_ns);
  const std::uint64_t estimate = costs.estimate(cost, launch);
  const bool known = estimate != 0;
  const double pace = current_pace(job.pace);
  const std::uint64_t price = known ? std::max<std::uint64_t>(scaled(estimate, pace), 1) : Costs::guess(cost);

  const std::uint64_t held = held_ns(credit);
  std::uint64_t taken = 0;
  if (!credit.open || held < price) {
    // Whole launches: a remainder would pay for one later, when another rank has the device.
    const std::uint64_t wanted = known ? price * std::max<std::uint64_t>(kCreditBatchNs / price, 1) : price;
    taken = wanted > held ? wanted - held : 0;
    const BudgetGrant grant = take_budget(job.usage, meter.rank_share, rate, {taken, known}, now_ns);
    if (!grant.granted) return {false, grant.until_ns};
  }
  const bool measure = cost.settled_ns.load(memory_order_relaxed) == 0 ||
                       now_ns - meter.measured_ns.load(memory_order_relaxed) >= kMeasureEveryNs;
  if (measure) meter.measured_ns.store(now_ns, memory_order_relaxed);
  if (!known) cost.guesses.fetch_add(1, memory_order_relaxed);
  return {true, 0, launch, estimate, price, taken, pace, measure};
}

bool open_batch(LaunchCredit &credit, const Decision &decision) {
  const std::uint64_t held = credit.unspent_ns + decision.taken_ns;
  const std::uint64_t rest = held - std::min(held, decision.price_ns);
  credit.open = true;
  credit.pace = decision.pace;
  credit.launches_before = credit.launches++;
  credit.batch = {decision.launch,       0,    decision.cost_ns, decision.price_ns, 1, decision.measure,
                  decision.cost_ns == 0, false};
  const auto more = static_cast<std::uint64_t>(static_cast<double>(rest) / decision.pace);
  // A batch that has no room for another such launch ends here: later, when the next launch comes, the device may have
  // been idle.
  const bool ends = decision.measure || decision.cost_ns == 0 || more < decision.cost_ns;
  credit.granted_ns = credit.remaining_ns = ends ? 0 : more;
  credit.budget_ns = ends ? 0 : rest;
  credit.unspent_ns = ends ? rest : 0;
  return ends;
}

Batch close_batch(LaunchCredit &credit) {
  const std::uint64_t rest = held_ns(credit) - credit.unspent_ns;
  Batch batch = credit.batch;
  batch.cost_ns += credit.granted_ns - credit.remaining_ns;
  batch.prepaid_ns += credit.budget_ns - rest;
  batch.launches = credit.launches - credit.launches_before;
  credit.unspent_ns += rest;
  credit.open = false;
  credit.remaining_ns = 0;
  return batch;
}

void cancel_batch(LaunchCredit &credit) {
  const Batch batch = close_batch(credit);
  credit.unspent_ns += batch.prepaid_ns;
}

void give_back(region::DeviceUsage &device, LaunchCredit &credit, std::uint32_t percent) {
  bool shared;
  correct(device, charge_rate(device, percent, &shared), -static_cast<std::int64_t>(credit.unspent_ns));
  credit.unspent_ns = 0;
}

}  // namespace vgpu::sm
