#include "feedback.h"

#include <algorithm>

#include "region/sm_words.h"

namespace vgpu::sm {

namespace {

constexpr double kLongestSpanNs = 8e9;  // beyond that older observations count half
constexpr double kLeast = 1.0 / 16, kMost = 16;
constexpr unsigned kLearning = 8;  // observations, until the length of a window is known
constexpr std::uint64_t kLeastWindowNs = 50'000'000;

}  // namespace

void Feedback::note_charged(std::uint64_t now_ns, std::uint64_t charged_ns) {
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

std::uint64_t Feedback::observe(const Observation &seen, std::uint64_t now_ns, std::uint64_t ratio) {
  const std::uint64_t from_ns = seen_to_ns_;
  if (seen.to_ns <= from_ns) return ratio;
  seen_to_ns_ = seen.to_ns;
  // How long NVML's windows are it does not say. They end at regular times; two in a row show it.
  const std::uint64_t apart = seen.to_ns - from_ns;
  if (from_ns != 0 && apart >= kLeastWindowNs && (window_ns_ == 0 || apart < window_ns_ - window_ns_ / 8)) {
    window_ns_ = apart;
    forget(now_ns);
  }
  if (++observed_ < kLearning || now_ns - looked_before() > window_ns_) return ratio;
  double before, after;
  if (from_ns < ignore_before_ns_ || !charged_at(from_ns, &before) || !charged_at(seen.to_ns, &after)) return ratio;

  const auto span = static_cast<double>(seen.to_ns - from_ns);
  span_ns_ += span;
  const double window = std::min(span, static_cast<double>(window_ns_));
  busy_ns_ += seen.percent / 100.0 * window;
  charged_ns_ += after - before;
  // Alone, events measure well, and NVML may have cut off all but the whole percents of every process. Among others
  // events measure too much, and NVML is believed as far as it usually errs.
  doubt_ns_ += seen.shared ? (0.5 * span + 0.35 * seen.processes * window) / 100
                           : (1.0 * span + 1.0 * seen.processes * window) / 100;
  if (span_ns_ < static_cast<double>(kSpanNs) || charged_ns_ <= 0) return ratio;

  const double expected = charged_ns_ * static_cast<double>(ratio) / region::TrimWord::kOne;
  const double doubt = doubt_ns_ + (seen.shared ? 1 : 3) * static_cast<double>(seen.launch_ns);
  if (busy_ns_ <= expected + doubt && busy_ns_ >= expected - doubt) {
    if (span_ns_ > kLongestSpanNs) {
      span_ns_ /= 2, busy_ns_ /= 2, charged_ns_ /= 2, doubt_ns_ /= 2;
    }
    return ratio;
  }
  const double fitting = std::clamp(busy_ns_ / charged_ns_, kLeast, kMost);
  forget(now_ns);
  return static_cast<std::uint64_t>(fitting * region::TrimWord::kOne);
}

}  // namespace vgpu::sm
