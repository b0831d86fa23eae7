#include "batch.h"

#include <algorithm>

#include "coverage.h"
#include "pace.h"

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

// The sums of batches with gaps fade over this much of costs, those of the pace over this much of charges. Shorter: the
// limits of single batches show, whose durations vary; what is more than the mean is then lost and what is less counts.
// Longer: they do not follow a program.
constexpr double kGapsFadeNs = 200e6, kPaceFadeNs = 50e6;
// Where the device was never idle it may still have done what is no kernel: copies, or nothing, because one stream waited
// for another. So a batch is charged at most this many times its costs. Smaller: kernels whose measured launches were
// shorter than the others, by chance, run for nothing; with 1, some of the model's random mixes get 3 points too much.
// Larger: programs that copy more than they compute get less than their share.
constexpr double kMostOfCosts = 1.5;
// A device that came to the last mark later than two launches take and this was behind the host all the time. Less: a
// launch that had just begun counts as a backlog. More: the batches of long kernels count as having gaps.
constexpr std::uint64_t kBehindNs = 2'000;
// A mark that the device came to so soon after its own arrival had nothing to wait for: when the launch before it ended
// is not known. Less than an event's resolution, half a microsecond, would take its steps for work.
constexpr std::uint64_t kAtOnceNs = 1'000;

// The batch's only launch was measured.
void learn(Costs &costs, const Batch &batch, const BatchEnd &end, Company company) {
  const std::uint64_t began = std::max(batch.arrived_ns, end.started_ns);
  std::uint64_t took = end.at_ns > began ? end.at_ns - began : 0;
  const Cost *cost = costs.find(batch.first.key);
  const std::uint64_t known = cost != nullptr ? cost->settled_ns.load(memory_order_relaxed) : 0;
  // Where the mark itself came after the launch had ended, it tells only that the launch took no longer.
  if (end.behind_ns <= kAtOnceNs && known != 0 && took > known && took < known + known / 2 + kAtOnceNs) took = known;
  costs.learn(batch.first, took, company);
}

}  // namespace

bool settle(const JobDevice &job, Meter &meter, Costs &costs, const Batch &batch, const BatchEnd &end,
            std::uint32_t percent) {
  bool shared;
  const ChargeRate rate = charge_rate(job.usage, percent, &shared);
  const auto covered = static_cast<double>(cover(job.coverage, std::max(batch.arrived_ns, end.started_ns), end.at_ns));
  const auto cost = static_cast<double>(batch.cost_ns);
  // Where no mark tells when the device was done, the host may have seen it late.
  const bool marked = end.started_ns != 0;
  const bool ahead = marked && (batch.launches <= 1 || end.behind_ns > 2 * batch.cost_ns / batch.launches + kBehindNs);

  double charged = covered;
  if (shared && !batch.guess) {
    charged = std::min(covered, cost);
  } else if (!batch.guess) {
    const region::PaceWord sums = add_fading(ahead ? meter.backlogs : meter.gaps, covered, cost, kGapsFadeNs);
    const double most = (ahead ? kMostOfCosts : 1) * static_cast<double>(sums.cost_ns);
    if (most < static_cast<double>(sums.charged_ns)) charged *= most / static_cast<double>(sums.charged_ns);
  }
  if (marked && batch.measured && !batch.interrupted) {
    learn(costs, batch, end, shared ? Company::jobs : has_contenders(job.usage) ? Company::ranks : Company::none);
  }
  if (!batch.guess) add_fading(job.pace, charged, cost, kPaceFadeNs / current_pace(job.pace));

  const std::int64_t difference = static_cast<std::int64_t>(charged) - static_cast<std::int64_t>(batch.prepaid_ns);
  correct(job.usage, rate, difference);
  return difference < -static_cast<std::int64_t>(kCreditBatchNs);
}

}  // namespace vgpu::sm
