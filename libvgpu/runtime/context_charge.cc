#include "context_charge.h"

#include "base/clock.h"
#include "contexts.h"
#include "pool_memory.h"
#include "refusal.h"
#include "reserve.h"
#include "runtime.h"

namespace vgpu::runtime {

namespace {

using region::ContextFigure;
using region::ContextSource;
using region::Grant;
using region::Kind;

constexpr unsigned kProbeMs = 500;
constexpr std::uint64_t kStepNs = 10'000'000;
constexpr unsigned kReserveTries = 8;

bool is_guess(const ContextFigure &figure) { return figure.source < ContextSource::measured; }

// Until it is this rank's turn to find out what a context takes, or somebody else has. False: neither, in time.
bool wait_for_turn(unsigned dev, bool *ours) {
  const std::uint64_t start = monotonic_ns();
  for (std::uint64_t now = start; now - start < std::uint64_t{kProbeMs} * 1'000'000; now = monotonic_ns()) {
    if (!is_guess(rank().context_figure(dev))) return true;
    *ours = rank().take_probe(dev, kProbeMs);
    if (*ours) return true;
    sleep_until(now + kStepNs);
  }
  return false;
}

}  // namespace

ContextCharge::ContextCharge(unsigned dev, Makes makes) : UntrackedCharge(dev, Kind::context, ByHand{}) {
  rank().begin_context(dev);
  const Reserving reserving(dev);
  if (makes == Makes::less) {
    reserved(0);
    return;
  }
  ContextFigure figure = rank().context_figure(dev);
  expected_ = figure.bytes;
  if (reserve(figure.bytes)) return;
  if (is_guess(figure) && wait_for_turn(dev, &probing_)) {
    if (probing_ && reserve_what_is_left()) return;
    figure = rank().context_figure(dev);
    expected_ = figure.bytes;
  }
  // Nothing else can be tried but what every refusal tries, which also says why.
  if (reserve_memory(dev, Kind::context, figure.bytes)) reserved(figure.bytes);
}

ContextCharge::~ContextCharge() {
  if (probing_) rank().end_probe(dev());
  rank().end_context(dev());
}

bool ContextCharge::reserve(std::uint64_t bytes) {
  const auto granted = [&] { return rank().try_to_reserve(dev(), Kind::context, bytes) == Grant::granted; };
  if (!granted() && !(trim_pools(dev()) && granted()) && !(settle_before_refusing(dev()) && granted())) return false;
  reserved(bytes);
  return true;
}

bool ContextCharge::reserve_what_is_left() {
  for (unsigned tries = 0; tries < kReserveTries; ++tries) {
    const std::uint64_t limit = job_region().memory_limit(dev());
    const std::uint64_t used = rank().memory_used(dev());
    // In whole units, rounded down.
    const std::uint64_t left = limit > used ? (limit - used) / region::bytes_of(1) * region::bytes_of(1) : 0;
    if (left == 0) return false;
    if (rank().try_to_reserve(dev(), Kind::context, left) != Grant::granted) continue;
    reserved(left);
    return true;
  }
  return false;
}

bool ContextCharge::settle(CUcontext made) {
  const Settled settled = UntrackedCharge::settle(probing_ ? Patience::bounded : Patience::none);
  // What a look found too much has been said; that there was none has not.
  if (settled == Settled::unknown) refuse(dev(), expected_, Grant::refused);
  if (settled != Settled::yes) return false;
  if (made != nullptr) context_charged(made, taken(), !is_measured());
  return true;
}

}  // namespace vgpu::runtime
