#include "correction.h"

#include "allocations.h"
#include "base/clock.h"
#include "contexts.h"
#include "imports.h"
#include "look.h"
#include "reserve.h"
#include "runtime.h"
#include "siblings.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

using region::Kind;

namespace {

constexpr unsigned kMeasureTries = 3;
// So close to the limit, what a module takes is measured at once.
constexpr std::uint64_t kNearBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kNearModules = 4;
constexpr std::uint64_t kNearPart = 16;

// What is more than expected is that of which least is known.
Kind kind_of_growth(UntrackedBooks &books, Kind kind) VGPU_REQUIRES(books.mutex) {
  if (kind != Kind::other) return kind;
  if (books.guessed != 0) return Kind::context;
  return books.unlooked_modules != 0 ? Kind::module : Kind::other;
}

// A look has shown what the modules took that were loaded since the last one: each its part, for nobody knows better.
void learn_modules(UntrackedBooks &books, std::uint64_t before, const Correction &correction)
    VGPU_REQUIRES(books.mutex) {
  const bool loading = correction.kind == Kind::module && correction.if_over == IfOver::refuse;
  const unsigned count = books.unlooked_modules + loading;
  if (count == 0 || books.guessed != 0) return;
  const std::uint64_t reserved = books.guessed_modules + (loading ? correction.own : 0);
  const std::uint64_t rest = before - std::min(before, reserved);
  const std::uint64_t taken = books.total() - std::min(rest, books.total());
  const std::uint64_t each = region::bytes_of(region::units_for(taken / count));  // charges are whole units
  if (loading) books.last_module = each;
  books.largest_module = std::max(books.largest_module, each);
}

// More for a call for which `own` bytes are charged. What is refused is all that it takes, not the last part of it.
bool reserve_more(unsigned dev, Kind kind, std::uint64_t more, std::uint64_t own) {
  if (rank().try_to_reserve(dev, kind, more) == region::Grant::granted) return true;
  rank().take_back(dev, kind, own);
  if (reserve_measured(dev, kind, own + more)) return true;
  rank().force(dev, kind, own);  // it is there until the call is undone
  return false;
}

Corrected apply(unsigned dev, UntrackedBooks &books, const Look &look, const Correction &correction)
    VGPU_REQUIRES(books.mutex) {
  // What others reserved for calls of theirs that have not returned stays reserved.
  const std::uint64_t others = books.in_progress - correction.own;
  const std::uint64_t before = books.total() - books.slack;
  const std::uint64_t settled = before - others;
  const std::uint64_t expected = settled > correction.gone ? settled - correction.gone : 0;
  // What others made and are charged for may be in our figure, too.
  const std::uint64_t least = look.least - std::min(look.least, explained_by_imports(dev));
  const std::uint64_t target = std::clamp(expected, least, look.most) + others;
  if (books.slack != 0) settle_slack(dev, books, target);
  const std::uint64_t have = books.total();
  if (target <= have) {
    const std::uint64_t kept = std::min(correction.elsewhere, books.charge_of(Kind::data));
    shrink(dev, books, correction.kind, have - target - std::min(have - target, kept), correction.own);
  } else {
    const Kind kind = kind_of_growth(books, correction.kind);
    const std::uint64_t more = target - have;
    // Another look may have shrunk this kind by what is reserved for this call: what is not charged cannot be taken back.
    const std::uint64_t own = std::min(correction.own, books.charge_of(kind));
    const bool charged = correction.if_over == IfOver::refuse ? reserve_more(dev, kind, more, own)
                                                              : rank().force(dev, kind, more) == region::Grant::granted;
    if (!charged) return Corrected::over;
    books.charge_of(kind) += more;
    if (kind == Kind::context && books.guessed != 0) correct_context_charges(dev, static_cast<std::int64_t>(more));
  }
  learn_modules(books, before, correction);
  books.guessed = 0;
  forget_unlooked(books);
  books.waited = false;
  ++books.generation;
  return Corrected::done;
}

}  // namespace

Corrected correct(unsigned dev, UntrackedBooks &books, Correction correction) {
  bool again = !looks_are_suspended(dev);
  for (unsigned tries = 0; again && tries < kMeasureTries; ++tries) {
    std::uint32_t generation = 0;
    {
      ScopedLock lock(books.mutex);
      adopt_correction(dev, books);
      generation = books.generation;
    }
    const Look look = look_at(dev);
    if (has_exported(dev)) correction.elsewhere = unbooked_by_siblings(dev);
    ScopedLock lock(books.mutex);
    books.never = look.sight == Sight::never;
    books.unsettled = look.sight == Sight::later;
    if (look.sight == Sight::never) {
      // Nobody can synchronise any more, and what was freed in order went with the last context.
      if (live_contexts(dev) == 0) give_back(dev, books, Kind::data, ~std::uint64_t{0});
      drop_slack(dev, books);
      return Corrected::unknown;
    }
    const bool same = books.generation == generation &&
                      look.held == region::bytes_of(look.known.units) + books.total() &&
                      held_without_idle(dev) == look.held && recorded(dev) == look.known;
    if (look.sight == Sight::known && same) {
      const Corrected corrected = apply(dev, books, look, correction);
      if (corrected == Corrected::done) books.in_progress -= correction.own;
      return corrected;
    }
    again = !same && look_pause_ms(dev) == 0;
  }
  ScopedLock lock(books.mutex);
  books.unsettled = true;
  untracked_unsettled.store(true, std::memory_order_relaxed);
  return Corrected::unknown;
}

void note_first_context(unsigned dev, UntrackedBooks &books) {
  ScopedLock lock(books.mutex);
  const std::uint64_t context = books.charge_of(Kind::context);
  if (books.unsettled || books.never || books.guessed + books.slack != 0 || context == 0) return;
  if (context != books.total()) return;
  const Recorded known = recorded(dev);
  const bool is_unknown = rank().context_figure(dev).source < region::ContextSource::measured;
  if (live_contexts(dev) != 1 || !(known.units == 0 || (is_unknown && known.elastic_units == 0))) return;
  rank().note_context(dev, context);
}

Corrected wait_for_nvml(unsigned dev, UntrackedBooks &books, const Correction &correction) {
  Corrected corrected = Corrected::unknown;
  const std::uint64_t start = monotonic_ns();
  for (std::uint64_t now = start; now - start < kPatienceNs; now = monotonic_ns()) {
    {
      ScopedLock lock(books.mutex);
      const bool is_guess = books.guessed != 0 || books.unlooked_modules != 0 || correction.kind == Kind::module;
      if (!is_guess || books.never || books.waited || looks_are_suspended(dev)) break;
    }
    sleep_until(now + kPollNs);
    corrected = correct(dev, books, correction);
    if (corrected != Corrected::unknown) break;
  }
  ScopedLock lock(books.mutex);
  books.waited = books.guessed != 0 || books.unlooked_modules != 0;
  return corrected;
}

namespace {

std::uint64_t left_of_limit(unsigned dev) {
  const std::uint64_t limit = job_region().memory_limit(dev);
  const std::uint64_t used = job_region().memory_used(dev);
  return limit - std::min(limit, used);
}

bool is_near_limit(unsigned dev, UntrackedBooks &books) {
  std::uint64_t margin = std::max(kNearBytes, job_region().memory_limit(dev) / kNearPart);
  ScopedLock lock(books.mutex);
  margin = std::max({margin, kNearModules * books.largest_module, books.exposure(books.unlooked_modules + 1)});
  return left_of_limit(dev) < margin;
}

}  // namespace

bool deserves_look(unsigned dev, UntrackedBooks &books) { return looks_are_cheap(dev) || is_near_limit(dev, books); }

}  // namespace vgpu::runtime
