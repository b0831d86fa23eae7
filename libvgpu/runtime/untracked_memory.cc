#include "untracked_memory.h"

#include <algorithm>

#include "allocations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "contexts.h"
#include "imports.h"
#include "look.h"
#include "refusal.h"
#include "reserve.h"
#include "runtime.h"
#include "siblings.h"

namespace vgpu::runtime {

std::atomic<bool> untracked_unsettled{false};
std::atomic<bool> untracked_data_waits{false};
[[gnu::tls_model("initial-exec")]] thread_local constinit unsigned calls_since_clock_read = 0;

namespace {

using region::Kind;

// How often an allocation may ask NVML: soon after a context was made, then ever less, down to once a second.
constexpr std::uint64_t kFirstIntervalMs = 20;
constexpr std::uint64_t kLastIntervalMs = 1000;
constexpr unsigned kMeasureTries = 3;
constexpr std::uint64_t kRefusalMs = 20;  // how old a look may be for somebody who is refused
constexpr std::uint64_t kPatienceNs = 500'000'000;
constexpr std::uint64_t kPollNs = 10'000'000;
// The least that a module takes: a block of the driver's.
constexpr std::uint64_t kLeastModule = std::uint64_t{2} << 20;
// So close to the limit, what a module takes is measured at once.
constexpr std::uint64_t kNearBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kNearModules = 4;
constexpr std::uint64_t kNearPart = 16;
// What modules may have taken that nobody has looked at: so much together at least; and each, while none was measured.
constexpr std::uint64_t kUnlookedBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kUnknownModule = std::uint64_t{16} << 20;

// Nothing here is held while NVML is asked. `generation` tells whether an answer still belongs to what it was asked for.
struct Device {
  Mutex mutex;
  // In bytes.
  std::uint64_t charged[region::kKinds] VGPU_GUARDED_BY(mutex);
  std::uint64_t in_progress VGPU_GUARDED_BY(mutex);      // of `charged`: reserved for calls that have not returned
  std::uint64_t guessed VGPU_GUARDED_BY(mutex);          // of the contexts' charge: not measured yet
  std::uint64_t guessed_modules VGPU_GUARDED_BY(mutex);  // of the modules' charge: the same
  // Of the contexts' charge, where other ranks can correct it: what unlooked modules may have taken beyond their own.
  std::uint64_t slack VGPU_GUARDED_BY(mutex);
  std::uint64_t last_module VGPU_GUARDED_BY(mutex);
  std::uint64_t largest_module VGPU_GUARDED_BY(mutex);  // 0: none was measured
  std::uint32_t generation VGPU_GUARDED_BY(mutex);
  unsigned reserving VGPU_GUARDED_BY(mutex);  // see UntrackedCharge::Reserving
  bool unsettled VGPU_GUARDED_BY(mutex);
  unsigned unlooked_modules VGPU_GUARDED_BY(mutex);  // loaded since the last look
  bool never VGPU_GUARDED_BY(mutex);                 // NVML cannot tell, as far as we know
  bool waited VGPU_GUARDED_BY(mutex);                // for NVML to show what is guessed, in vain

  std::uint64_t total() const VGPU_REQUIRES(mutex) {
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : charged) sum += bytes;
    return sum;
  }
  // What so many modules may have taken.
  std::uint64_t exposure(unsigned modules) const VGPU_REQUIRES(mutex) {
    const std::uint64_t each = largest_module != 0 ? std::max(largest_module, kLeastModule) : kUnknownModule;
    return modules != 0 ? std::max(modules * each, kUnlookedBytes) : 0;
  }
};

struct Untracked {
  Device devices[region::kMaxDevices];
  std::atomic<std::uint64_t> due_ms;       // when settle_due() may try again
  std::atomic<std::uint64_t> interval_ms;  // what it then waits; by whoever moved due_ms
};
constinit WipedOnFork<Untracked> untracked;

void measure_soon(Untracked &state) {
  state.interval_ms.store(kFirstIntervalMs, std::memory_order_relaxed);
  state.due_ms.store(coarse_ms() + kFirstIntervalMs, std::memory_order_relaxed);
}

std::uint64_t &charge_of(Device &device, Kind kind) VGPU_REQUIRES(device.mutex) {
  return device.charged[static_cast<unsigned>(kind)];
}

// Another rank may have corrected what this one is charged for its contexts, while it was at rest.
void adopt_correction(unsigned dev, Device &device) VGPU_REQUIRES(device.mutex) {
  if (device.reserving != 0 || rank().slot() == region::kRootSlot) return;
  const std::uint64_t now = rank().memory_held(dev, Kind::context);
  std::uint64_t &mine = charge_of(device, Kind::context);
  if (now == mine) return;
  correct_context_charges(dev, static_cast<std::int64_t>(now - mine));
  mine = now;
  device.guessed = 0;
  device.slack = 0;
  ++device.generation;
}

// Whether memory was ever there: what was only reserved or guessed is in no peak.
enum class Was : std::uint8_t { there, never_there };

// How much of it was there to give back.
std::uint64_t give_back(unsigned dev, Device &device, Kind kind, std::uint64_t bytes, Was was = Was::there)
    VGPU_REQUIRES(device.mutex) {
  const std::uint64_t part = std::min(bytes, charge_of(device, kind));
  if (part == 0) return 0;
  if (was == Was::there) {
    rank().release(dev, kind, part);
  } else {
    rank().take_back(dev, kind, part);
  }
  charge_of(device, kind) -= part;
  if (kind == Kind::data) no_longer_charged(dev, part);
  ++device.generation;
  return part;
}

// `own`: what was reserved for the call that is being settled.
void shrink(unsigned dev, Device &device, Kind first, std::uint64_t bytes, std::uint64_t own)
    VGPU_REQUIRES(device.mutex) {
  // A guess was never more than that.
  bytes -= give_back(dev, device, first, std::min(bytes, own), Was::never_there);
  if (first != Kind::data && device.guessed != 0) {
    const std::uint64_t part = give_back(dev, device, Kind::context, std::min(bytes, device.guessed), Was::never_there);
    correct_context_charges(dev, -static_cast<std::int64_t>(part));
    bytes -= part;
  }
  bytes -= give_back(dev, device, first, bytes);
  // Untracked data goes at any time, but not with a context or a module.
  if (first == Kind::data || first == Kind::other) bytes -= give_back(dev, device, Kind::data, bytes);
  for (const Kind kind : {Kind::other, Kind::module, Kind::context, Kind::data}) {
    bytes -= give_back(dev, device, kind, bytes);
  }
}

enum class IfOver : std::uint8_t { refuse, charge };

struct Correction {
  Kind kind = Kind::other;
  IfOver if_over = IfOver::charge;
  std::uint64_t gone = 0;       // has probably been given back, which decides where a look leaves it open
  std::uint64_t own = 0;        // reserved for the call that is being settled
  std::uint64_t elsewhere = 0;  // what this process made, has freed, and others hold without being charged for it
};

enum class Corrected : std::uint8_t { done, over, unknown };

// What is more than expected is that of which least is known.
Kind kind_of_growth(Device &device, Kind kind) VGPU_REQUIRES(device.mutex) {
  if (kind != Kind::other) return kind;
  if (device.guessed != 0) return Kind::context;
  return device.unlooked_modules != 0 ? Kind::module : Kind::other;
}

void forget_unlooked(Device &device) VGPU_REQUIRES(device.mutex) {
  device.guessed_modules = 0;
  device.unlooked_modules = 0;
  device.slack = 0;
}

void drop_slack(unsigned dev, Device &device) VGPU_REQUIRES(device.mutex) {
  give_back(dev, device, Kind::context, device.slack, Was::never_there);
  device.slack = 0;
}

// What of the slack modules have really taken is theirs.
void settle_slack(unsigned dev, Device &device, std::uint64_t target) VGPU_REQUIRES(device.mutex) {
  const std::uint64_t without = device.total() - device.slack;
  const std::uint64_t part = std::min(device.slack, target - std::min(target, without));
  // Charged twice for a moment rather than not at all.
  if (part != 0 && rank().force(dev, Kind::module, part) == region::Grant::granted) {
    charge_of(device, Kind::module) += part;
  }
  drop_slack(dev, device);
}

// A look has shown what the modules took that were loaded since the last one: each its part, for nobody knows better.
void learn_modules(Device &device, std::uint64_t before, const Correction &correction) VGPU_REQUIRES(device.mutex) {
  const bool loading = correction.kind == Kind::module && correction.if_over == IfOver::refuse;
  const unsigned count = device.unlooked_modules + loading;
  if (count == 0 || device.guessed != 0) return;
  const std::uint64_t reserved = device.guessed_modules + (loading ? correction.own : 0);
  const std::uint64_t rest = before - std::min(before, reserved);
  const std::uint64_t taken = device.total() - std::min(rest, device.total());
  const std::uint64_t each = region::bytes_of(region::units_for(taken / count));  // charges are whole units
  if (loading) device.last_module = each;
  device.largest_module = std::max(device.largest_module, each);
}

// More for a call that has reserved some. What is refused is all that it takes, not the last part of it.
bool reserve_more(unsigned dev, Kind kind, std::uint64_t more, std::uint64_t own) {
  if (rank().try_to_reserve(dev, kind, more) == region::Grant::granted) return true;
  rank().take_back(dev, kind, own);
  if (reserve_measured(dev, kind, own + more)) return true;
  rank().force(dev, kind, own);  // it is there until the call is undone
  return false;
}

Corrected apply(unsigned dev, Device &device, const Look &look, const Correction &correction)
    VGPU_REQUIRES(device.mutex) {
  // What others reserved for calls of theirs that have not returned stays reserved.
  const std::uint64_t others = device.in_progress - correction.own;
  const std::uint64_t before = device.total() - device.slack;
  const std::uint64_t settled = before - others;
  const std::uint64_t expected = settled > correction.gone ? settled - correction.gone : 0;
  // What others made and are charged for may be in our figure, too.
  const std::uint64_t least = look.least - std::min(look.least, explained_by_imports(dev));
  const std::uint64_t target = std::clamp(expected, least, look.most) + others;
  if (device.slack != 0) settle_slack(dev, device, target);
  const std::uint64_t have = device.total();
  if (target <= have) {
    const std::uint64_t kept = std::min(correction.elsewhere, charge_of(device, Kind::data));
    shrink(dev, device, correction.kind, have - target - std::min(have - target, kept), correction.own);
  } else {
    const Kind kind = kind_of_growth(device, correction.kind);
    const std::uint64_t more = target - have;
    const bool charged = correction.if_over == IfOver::refuse ? reserve_more(dev, kind, more, correction.own)
                                                              : rank().force(dev, kind, more) == region::Grant::granted;
    if (!charged) return Corrected::over;
    charge_of(device, kind) += more;
    if (kind == Kind::context && device.guessed != 0) correct_context_charges(dev, static_cast<std::int64_t>(more));
  }
  learn_modules(device, before, correction);
  device.guessed = 0;
  forget_unlooked(device);
  device.waited = false;
  ++device.generation;
  return Corrected::done;
}

// Makes the charge what it should be.
Corrected correct(unsigned dev, Device &device, Correction correction) {
  bool again = !looks_are_suspended(dev);
  for (unsigned tries = 0; again && tries < kMeasureTries; ++tries) {
    std::uint32_t generation = 0;
    {
      ScopedLock lock(device.mutex);
      adopt_correction(dev, device);
      generation = device.generation;
    }
    const Look look = look_at(dev);
    if (has_exported(dev)) correction.elsewhere = unbooked_by_siblings(dev);
    ScopedLock lock(device.mutex);
    device.never = look.sight == Sight::never;
    device.unsettled = look.sight == Sight::later;
    if (look.sight == Sight::never) {
      // Nobody can synchronise any more, and what was freed in order went with the last context.
      if (live_contexts(dev) == 0) give_back(dev, device, Kind::data, ~std::uint64_t{0});
      drop_slack(dev, device);
      return Corrected::unknown;
    }
    const bool same = device.generation == generation &&
                      look.held == region::bytes_of(look.known.units) + device.total() &&
                      held_without_idle(dev) == look.held && recorded(dev) == look.known;
    if (look.sight == Sight::known && same) {
      const Corrected corrected = apply(dev, device, look, correction);
      if (corrected == Corrected::done) device.in_progress -= correction.own;
      return corrected;
    }
    again = !same && look_pause_ms(dev) == 0;
  }
  ScopedLock lock(device.mutex);
  device.unsettled = true;
  untracked_unsettled.store(true, std::memory_order_relaxed);
  return Corrected::unknown;
}

// What the first context of a process took is what a context takes; later ones share with it.
void note_first_context(unsigned dev, Device &device) {
  ScopedLock lock(device.mutex);
  const std::uint64_t context = charge_of(device, Kind::context);
  if (device.unsettled || device.never || device.guessed + device.slack != 0 || context == 0) return;
  if (context != device.total()) return;
  const Recorded known = recorded(dev);
  const bool is_unknown = rank().context_figure(dev).source < region::ContextSource::measured;
  if (live_contexts(dev) != 1 || !(known.units == 0 || (is_unknown && known.elastic_units == 0))) return;
  rank().note_context(dev, context);
}

void settle_device(unsigned dev, Device &device) {
  {
    ScopedLock lock(device.mutex);
    if (device.total() == 0 && live_contexts(dev) == 0) return;
  }
  correct(dev, device, {});
  note_first_context(dev, device);
  if (rank().lead_looking(dev)) settle_siblings(dev);
}

std::uint64_t left_of_limit(unsigned dev) {
  const std::uint64_t limit = job_region().memory_limit(dev);
  const std::uint64_t used = job_region().memory_used(dev);
  return limit - std::min(limit, used);
}

bool is_near_limit(unsigned dev, Device &device) {
  std::uint64_t margin = std::max(kNearBytes, job_region().memory_limit(dev) / kNearPart);
  ScopedLock lock(device.mutex);
  margin = std::max({margin, kNearModules * device.largest_module, device.exposure(device.unlooked_modules + 1)});
  return left_of_limit(dev) < margin;
}

// Whether a call of a program can have a look of its own.
bool deserves_look(unsigned dev, Device &device) { return looks_are_cheap(dev) || is_near_limit(dev, device); }

// What is measured at once need not be guessed.
std::uint64_t expected_module(unsigned dev) {
  Untracked *state = untracked.get();
  if (state == nullptr) return 0;
  Device &device = state->devices[dev];
  const std::uint64_t least = deserves_look(dev, device) ? 0 : kLeastModule;
  ScopedLock lock(device.mutex);
  return std::max(device.last_module, least);
}

// Until NVML shows what is guessed, or cannot, or time is up.
Corrected wait_for_nvml(unsigned dev, Device &device, const Correction &correction = {}) {
  Corrected corrected = Corrected::unknown;
  const std::uint64_t start = monotonic_ns();
  for (std::uint64_t now = start; now - start < kPatienceNs; now = monotonic_ns()) {
    {
      ScopedLock lock(device.mutex);
      const bool is_guess = device.guessed != 0 || device.unlooked_modules != 0 || correction.kind == Kind::module;
      if (!is_guess || device.never || device.waited || looks_are_suspended(dev)) break;
    }
    sleep_until(now + kPollNs);
    corrected = correct(dev, device, correction);
    if (corrected != Corrected::unknown) break;
  }
  ScopedLock lock(device.mutex);
  device.waited = device.guessed != 0 || device.unlooked_modules != 0;
  return corrected;
}

// What a module may take that nobody can measure yet, beyond the `own` bytes that are reserved for it. False: it is more than
// is left.
bool reserve_slack(unsigned dev, Device &device, std::uint64_t own) {
  ScopedLock lock(device.mutex);
  if (device.never || device.waited) return true;
  const std::uint64_t reserved = device.guessed_modules + own + device.slack;
  const std::uint64_t exposure = device.exposure(device.unlooked_modules + 1);
  if (exposure <= reserved) return true;
  const std::uint64_t more = exposure - reserved;
  if (rank().try_to_reserve(dev, Kind::context, more) != region::Grant::granted) return false;
  charge_of(device, Kind::context) += more;
  device.slack += more;
  ++device.generation;
  return true;
}

}  // namespace

// ---- what a call takes ----------------------------------------------------------------------------------------------

UntrackedCharge::Reserving::Reserving(unsigned dev) : dev_(dev) {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  ScopedLock lock(state->devices[dev_].mutex);
  ++state->devices[dev_].reserving;
}

UntrackedCharge::Reserving::~Reserving() {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  ScopedLock lock(state->devices[dev_].mutex);
  --state->devices[dev_].reserving;
}

UntrackedCharge::UntrackedCharge(unsigned dev, Kind kind) : UntrackedCharge(dev, kind, expected_module(dev)) {}

UntrackedCharge::UntrackedCharge(unsigned dev, Kind kind, std::uint64_t expected)
    : UntrackedCharge(dev, kind, ByHand{}) {
  const Reserving reserving(dev);
  std::uint64_t bytes = region::bytes_of(region::units_for(expected));
  // Modules differ: that the last one would not fit says nothing of this one. It is measured, and undone if need be.
  bool granted = kind == Kind::module && rank().try_to_reserve(dev, kind, bytes) == region::Grant::granted;
  if (!granted) {
    if (kind == Kind::module) bytes = 0;
    granted = reserve_memory(dev, kind, bytes);
  }
  if (granted) reserved(bytes);
}

void UntrackedCharge::reserved(std::uint64_t bytes) {
  Untracked *state = untracked.get();
  if (state == nullptr) {
    rank().take_back(dev_, kind_, bytes);
    return;
  }
  Device &device = state->devices[dev_];
  ScopedLock lock(device.mutex);
  charge_of(device, kind_) += bytes;
  device.in_progress += bytes;
  ++device.generation;
  reserved_ = bytes;
  granted_ = true;
}

void UntrackedCharge::cancel() {
  Device &device = untracked.get()->devices[dev_];
  ScopedLock lock(device.mutex);
  device.in_progress -= reserved_;
  give_back(dev_, device, kind_, reserved_, Was::never_there);
  ++device.generation;
  reserved_ = 0;
}

// A module that nobody measured takes a block at least.
bool UntrackedCharge::reserve_least() {
  if (reserved_ >= kLeastModule) return true;
  const std::uint64_t more = kLeastModule - reserved_;
  if (!reserve_memory(dev_, kind_, more)) return false;
  Device &device = untracked.get()->devices[dev_];
  ScopedLock lock(device.mutex);
  charge_of(device, kind_) += more;
  device.in_progress += more;
  ++device.generation;
  reserved_ += more;
  return true;
}

UntrackedCharge::Settled UntrackedCharge::settle(Patience patience) {
  Untracked &state = *untracked.get();
  Device &device = state.devices[dev_];
  std::uint64_t before = 0;
  {
    ScopedLock lock(device.mutex);
    before = device.total() - reserved_;
  }
  if (kind_ == Kind::context) measure_soon(state);
  const Correction correction = {kind_, IfOver::refuse, 0, reserved_, 0};
  const std::uint64_t start = monotonic_ns();
  Corrected corrected = Corrected::unknown;
  if (kind_ == Kind::context || deserves_look(dev_, device)) corrected = correct(dev_, device, correction);
  if (corrected == Corrected::unknown && kind_ == Kind::module && !reserve_slack(dev_, device, reserved_)) {
    corrected = wait_for_nvml(dev_, device, correction);
  }
  while (corrected == Corrected::unknown && patience == Patience::bounded && monotonic_ns() - start < kPatienceNs) {
    sleep_until(monotonic_ns() + kPollNs);
    corrected = correct(dev_, device, correction);
  }
  if (corrected == Corrected::over) return Settled::over;
  if (corrected == Corrected::unknown && patience == Patience::bounded) return Settled::unknown;
  measured_ = corrected == Corrected::done;
  if (!measured_ && kind_ == Kind::module && !reserve_least()) return Settled::over;
  {
    ScopedLock lock(device.mutex);
    if (measured_) {
      taken_ = device.total() - std::min(before, device.total());
    } else {
      device.in_progress -= reserved_;
      ++device.generation;
      taken_ = reserved_;
    }
    if (kind_ == Kind::context && !measured_) {
      device.guessed += reserved_;
      device.waited = false;
    }
    if (kind_ == Kind::module && !measured_) {
      device.guessed_modules += taken_;
      ++device.unlooked_modules;
    }
  }
  reserved_ = 0;
  if (!measured_) note_untracked_growth();
  if (kind_ == Kind::context) note_first_context(dev_, device);
  return Settled::yes;
}

// ---- contexts -------------------------------------------------------------------------------------------------------

void context_gone(unsigned dev, std::uint64_t bytes) {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  Device &device = state->devices[dev];
  ScopedLock lock(device.mutex);
  adopt_correction(dev, device);
  device.guessed -= std::min(device.guessed, give_back(dev, device, Kind::context, bytes));
  if (live_contexts(dev) != 0) return;
  // Without a context there are no modules, heaps or stacks; of what is being made nothing is there yet.
  give_back(dev, device, Kind::module, ~std::uint64_t{0});
  give_back(dev, device, Kind::other, ~std::uint64_t{0});
  const std::uint64_t rest = charge_of(device, Kind::context);
  give_back(dev, device, Kind::context, rest - std::min(rest, device.in_progress));
  device.guessed = 0;
  forget_unlooked(device);
}

void charge_unseen_context(unsigned dev, CUcontext context) {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  Device &device = state->devices[dev];
  const std::uint64_t bytes = rank().context_figure(dev).bytes;
  ScopedLock lock(device.mutex);
  if (rank().force(dev, Kind::context, bytes) != region::Grant::granted) return;
  charge_of(device, Kind::context) += bytes;
  device.guessed += bytes;
  device.waited = false;
  ++device.generation;
  context_charged(context, bytes, true);
  measure_soon(*state);
  untracked_unsettled.store(true, std::memory_order_relaxed);
}

// ---- looks ----------------------------------------------------------------------------------------------------------

void settle_untracked(unsigned dev, Kind kind) {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  Device &device = state->devices[dev];
  std::uint64_t gone = 0;
  if (kind == Kind::module) {
    ScopedLock lock(device.mutex);
    gone = device.last_module;
  }
  const bool now = kind == Kind::context || deserves_look(dev, device);
  if (now && correct(dev, device, {kind, IfOver::charge, gone, 0, 0}) != Corrected::unknown) return;
  note_untracked_growth();
  if (kind != Kind::module) return;
  // What was guessed for it goes by a guess, too.
  ScopedLock lock(device.mutex);
  const std::uint64_t guess = std::min(device.guessed_modules, std::max(device.last_module, kLeastModule));
  device.guessed_modules -= give_back(dev, device, kind, guess);
}

void note_untracked_growth() {
  Untracked *state = untracked.get();
  if (state == nullptr || untracked_unsettled.load(std::memory_order_relaxed)) return;
  measure_soon(*state);
  untracked_unsettled.store(true, std::memory_order_relaxed);
}

void untrack_data(unsigned dev, std::uint64_t bytes) {
  Untracked *state = untracked.get();
  if (state == nullptr) return;
  Device &device = state->devices[dev];
  ScopedLock lock(device.mutex);
  charge_of(device, Kind::data) += bytes;
  ++device.generation;
  measure_soon(*state);
  untracked_unsettled.store(true, std::memory_order_relaxed);
  untracked_data_waits.store(true, std::memory_order_relaxed);
}

void give_back_what_was_freed() {
  Untracked *state = untracked.get();
  if (state == nullptr || mode() != Mode::active) return;
  untracked_data_waits.store(false, std::memory_order_relaxed);
  for (unsigned dev = 0; dev < job_region().ndev(); ++dev) {
    Device &device = state->devices[dev];
    ScopedLock lock(device.mutex);
    if (device.never) give_back(dev, device, Kind::data, ~std::uint64_t{0});
    if (charge_of(device, Kind::data) != 0) untracked_data_waits.store(true, std::memory_order_relaxed);
  }
}

namespace {

bool settle_own_before_refusing(unsigned dev) {
  Untracked *state = untracked.get();
  if (state == nullptr) return false;
  Device &device = state->devices[dev];
  std::uint64_t before = 0;
  bool may_be_gone = untracked_unsettled.load(std::memory_order_relaxed);
  std::uint64_t oldest = look_pause_ms(dev);
  {
    ScopedLock lock(device.mutex);
    before = device.total();
    // Contexts and modules do not go unseen; what else was there at the last look may be gone, and a guess was too much.
    const bool lasts = device.guessed + device.slack == 0 &&
                       before == charge_of(device, Kind::context) + charge_of(device, Kind::module);
    if (!may_be_gone) oldest = std::max(oldest, kRefusalMs);
    may_be_gone = may_be_gone || !lasts;
  }
  if (!may_be_gone) return false;
  if (ms_since_look(dev) >= oldest) correct(dev, device, {});
  wait_for_nvml(dev, device);
  note_first_context(dev, device);
  ScopedLock lock(device.mutex);
  return device.total() < before;
}

}  // namespace

bool settle_before_refusing(unsigned dev) {
  if (mode() != Mode::active) return false;
  // Each of both: the other ranks may have been charged too much as well.
  const bool own = settle_own_before_refusing(dev);
  return wait_for_siblings(dev) || own;
}

void look_for_reader(unsigned dev) {
  Untracked *state = untracked.get();
  // What is unsettled is worth a look at any time, if looks are cheap.
  if (state != nullptr && ms_since_look(dev) >= look_pause_ms(dev)) settle_device(dev, state->devices[dev]);
}

void settle_due() {
  Untracked *state = untracked.get();
  if (state == nullptr || mode() != Mode::active) return;
  const std::uint64_t now = coarse_ms();
  const std::uint64_t interval = state->interval_ms.load(std::memory_order_relaxed);
  std::uint64_t due = state->due_ms.load(std::memory_order_relaxed);
  if (now < due || !state->due_ms.compare_exchange_strong(due, now + interval, std::memory_order_relaxed)) return;
  state->interval_ms.store(std::clamp(2 * interval, kFirstIntervalMs, kLastIntervalMs), std::memory_order_relaxed);
  untracked_unsettled.store(false, std::memory_order_relaxed);  // correct() says so again where it must
  std::uint64_t pause = interval;
  for (unsigned dev = 0; dev < job_region().ndev(); ++dev) {
    settle_device(dev, state->devices[dev]);
    pause = std::max(pause, look_pause_ms(dev));
  }
  if (pause > interval) state->due_ms.store(coarse_ms() + pause, std::memory_order_relaxed);
}

}  // namespace vgpu::runtime
