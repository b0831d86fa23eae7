#include "feedback.h"

#include <algorithm>
#include <cmath>

#include "region/sm_words.h"

namespace vgpu::sm {

namespace {

// Once so much was compared without a difference, all of it counts half. Absent, hours of agreement would hide a change
// for as long: the allowance grows with what was compared. Smaller: of less time the launches at its edges (see Doubt)
// are a larger part, and small differences are never found.
constexpr double kLongestSpanNs = 8e9;
// How far off costs can be, either way. Absent, a report of 0 % would make launches free, and one of a device busy with
// other work expensive without end (feedback_test). Narrower: costs that are further off than that stay wrong.
constexpr double kLeastCorrection = 1.0 / 16, kLargestCorrection = 16;
// How many observations it takes until the length of NVML's windows is known: the shortest time between two of them.
// Fewer: where a window was missed among the first ones, the length is taken for twice what it is, and one window's
// percents for those of two (the model misses none). More: the first correction comes later; with 40, costs that are
// off by half are off until 9 instead of 4 s in the model.
constexpr unsigned kLearningObservations = 8;
// Two observations that are closer than this are not two windows in a row: several processes' windows may end at
// slightly different times. Absent, such a pair would be taken for the length of a window, and everything after it for
// missed windows. Longer than a real window, 200 ms: no length is ever learned, and nothing is ever corrected.
constexpr std::uint64_t kLeastWindowNs = 50'000'000;
// A shorter length of windows is believed if it is shorter by an eighth, as two windows in a row are shorter than what
// spans a missed one. Absent, every little jitter of NVML's times would be a new length, and forget what was compared.
// Much more, a half: a length that was learned across one missed window would stay.
constexpr std::uint64_t kJitterPart = 8;
// By how much NVML may be wrong about a process: percents of the compared time, percents of a window for each process
// (it reports whole ones), and typical launches that it counted in another window. Alone on the device events measure
// well, and NVML may have cut off nearly a whole percent of every process: with less doubt, jobs of eight ranks get up
// to 2 points too much in the model (0.13 with this). Among other jobs events measure too much, and NVML is believed as
// far as it usually errs. With more doubt costs that are off by less are not corrected; feedback_test holds both.
struct Doubt {
  double span_percent, process_percent, launches;
};
constexpr Doubt kDoubtAlone = {1.0, 1.0, 3}, kDoubtShared = {0.5, 0.35, 1};

// A job that was charged less than this part of the time did not compute: NVML has nothing to say of it. Absent, the ratio
// of a job that pauses would fade. A job that really computes so little is far from most limits.
constexpr std::uint64_t kIdlePart = 20;
// The time between two ticks counts as at most so much. Absent, a job that comes back after a pause with a charge would
// have been unheard for all of it.
constexpr std::uint64_t kLongestTickNs = 500'000'000;
// How much of the way to 1 is left after a tick. Nothing: a job that shares the device would gain or lose much at once.
constexpr double kFading = 7.0 / 8;

}  // namespace

void Feedback::note_charged(std::uint64_t now_ns, std::uint64_t charged_ns) {
  if (noted_ != 0) {
    const Point &last = history_[(noted_ - 1) % kHistory];
    const std::uint64_t apart = now_ns - last.at_ns;
    // Charges that were taken back make it negative.
    const auto charged = static_cast<std::int64_t>(charged_ns - last.charged_ns);
    if (charged > static_cast<std::int64_t>(apart / kIdlePart)) unheard_ns_ += std::min(apart, kLongestTickNs);
  }
  history_[noted_++ % kHistory] = {now_ns, charged_ns};
}

bool Feedback::charged_at(std::uint64_t at_ns, double *charged_ns) const {
  const unsigned points = std::min(noted_, kHistory);
  for (unsigned back = 1; back < points; ++back) {
    const Point &later = history_[(noted_ - back) % kHistory];
    const Point &earlier = history_[(noted_ - back - 1) % kHistory];
    if (at_ns > later.at_ns || at_ns < earlier.at_ns) continue;
    const double part = later.at_ns == earlier.at_ns ? 0
                                                     : static_cast<double>(at_ns - earlier.at_ns) /
                                                           static_cast<double>(later.at_ns - earlier.at_ns);
    *charged_ns = static_cast<double>(earlier.charged_ns) +
                  part * static_cast<double>(static_cast<std::int64_t>(later.charged_ns - earlier.charged_ns));
    return true;
  }
  return false;
}

void Feedback::forget(std::uint64_t now_ns) {
  span_ns_ = busy_ns_ = charged_ns_ = doubt_ns_ = 0;
  ignore_before_ns_ = now_ns;
}

std::uint64_t Feedback::without_answer(std::uint64_t ratio) const {
  if (unheard_ns_ < kUnheardNs) return ratio;
  const double off = static_cast<double>(ratio) - region::TrimWord::kOne;
  // Towards 1 also by the last steps, which are less than the ratio's own.
  return static_cast<std::uint64_t>(region::TrimWord::kOne + std::trunc(off * kFading));
}

std::uint64_t Feedback::observe(const Observation &seen, std::uint64_t now_ns, std::uint64_t ratio) {
  unheard_ns_ = 0;
  const std::uint64_t from_ns = seen_to_ns_;
  if (seen.to_ns <= from_ns) return ratio;
  seen_to_ns_ = seen.to_ns;
  // NVML does not say how long its windows are. They end at regular times; two in a row show it.
  const std::uint64_t apart = seen.to_ns - from_ns;
  if (from_ns != 0 && apart >= kLeastWindowNs && (window_ns_ == 0 || apart < window_ns_ - window_ns_ / kJitterPart)) {
    window_ns_ = apart;
    forget(now_ns);
  }
  if (++observed_ < kLearningObservations || now_ns - previous_tick_ns() > window_ns_) return ratio;
  double before, after;
  if (from_ns < ignore_before_ns_ || !charged_at(from_ns, &before) || !charged_at(seen.to_ns, &after)) return ratio;

  const auto span = static_cast<double>(seen.to_ns - from_ns);
  span_ns_ += span;
  const double window = std::min(span, static_cast<double>(window_ns_));
  busy_ns_ += seen.percent / 100.0 * window;
  charged_ns_ += after - before;
  const Doubt &allowed = seen.shared ? kDoubtShared : kDoubtAlone;
  doubt_ns_ += (allowed.span_percent * span + allowed.process_percent * seen.processes * window) / 100;
  if (span_ns_ < static_cast<double>(kLeastSpanNs) || charged_ns_ <= 0) return ratio;

  const double expected = charged_ns_ * static_cast<double>(ratio) / region::TrimWord::kOne;
  const double doubt = doubt_ns_ + allowed.launches * static_cast<double>(seen.launch_ns);
  if (busy_ns_ <= expected + doubt && busy_ns_ >= expected - doubt) {
    if (span_ns_ > kLongestSpanNs) {
      span_ns_ /= 2, busy_ns_ /= 2, charged_ns_ /= 2, doubt_ns_ /= 2;
    }
    return ratio;
  }
  const double fitting = std::clamp(busy_ns_ / charged_ns_, kLeastCorrection, kLargestCorrection);
  forget(now_ns);
  return static_cast<std::uint64_t>(fitting * region::TrimWord::kOne);
}

}  // namespace vgpu::sm
