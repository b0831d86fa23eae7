#include "untracked_memory.h"

#include <algorithm>

#include "contexts.h"
#include "correction.h"
#include "runtime.h"
#include "siblings.h"

namespace vgpu::runtime {

std::atomic<bool> untracked_unsettled{false};
std::atomic<std::uint64_t> settle_due_ms{0};
std::atomic<bool> untracked_data_waits{false};
[[gnu::tls_model("initial-exec")]] thread_local constinit unsigned calls_since_clock_read = 0;

using region::Kind;

namespace {

constexpr std::uint64_t kRefusalMs = 20;  // how old a look may be for somebody who is refused

void settle_device(unsigned dev, UntrackedBooks &books) {
  {
    ScopedLock lock(books.mutex);
    if (books.total() == 0 && live_contexts(dev) == 0) return;
  }
  correct(dev, books, {});
  note_first_context(dev, books);
  if (rank().lead_looking(dev)) look_at_siblings(dev);
  // Over the limit, nobody opens a block any more, not even one that was charged ahead.
  if (job_region().memory_used(dev) > job_region().memory_limit(dev)) rank().give_up_idle(dev);
}

}  // namespace

// ---- contexts -------------------------------------------------------------------------------------------------------

void context_gone(unsigned dev, std::uint64_t bytes) {
  Untracked *state = untracked_books();
  if (state == nullptr) return;
  UntrackedBooks &books = state->devices[dev];
  ScopedLock lock(books.mutex);
  adopt_correction(dev, books);
  books.guessed -= std::min(books.guessed, give_back(dev, books, Kind::context, bytes));
  if (live_contexts(dev) != 0) return;
  // Without a context there are no modules, heaps or stacks; of what is being made nothing is there yet.
  give_back(dev, books, Kind::module, ~std::uint64_t{0});
  give_back(dev, books, Kind::other, ~std::uint64_t{0});
  const std::uint64_t rest = books.charge_of(Kind::context);
  give_back(dev, books, Kind::context, rest - std::min(rest, books.in_progress));
  books.guessed = 0;
  forget_unlooked(books);
}

void charge_unseen_context(unsigned dev, CUcontext context) {
  Untracked *state = untracked_books();
  if (state == nullptr) return;
  UntrackedBooks &books = state->devices[dev];
  const std::uint64_t bytes = rank().context_figure(dev).bytes;
  ScopedLock lock(books.mutex);
  if (rank().force(dev, Kind::context, bytes) != region::Grant::granted) return;
  books.charge_of(Kind::context) += bytes;
  books.guessed += bytes;
  books.waited = false;
  ++books.generation;
  context_charged(context, bytes, true);
  measure_soon(*state);
  untracked_unsettled.store(true, std::memory_order_relaxed);
}

// ---- looks ----------------------------------------------------------------------------------------------------------

void settle_untracked(unsigned dev, Kind kind) {
  Untracked *state = untracked_books();
  if (state == nullptr) return;
  UntrackedBooks &books = state->devices[dev];
  std::uint64_t gone = 0;
  if (kind == Kind::module) {
    ScopedLock lock(books.mutex);
    gone = books.last_module;
  }
  const bool now = kind == Kind::context || deserves_look(dev, books);
  if (now && correct(dev, books, {kind, IfOver::charge, gone, 0, 0}) != Corrected::unknown) return;
  note_untracked_growth();
  if (kind != Kind::module) return;
  // What was guessed for it goes by a guess, too.
  ScopedLock lock(books.mutex);
  const std::uint64_t guess = std::min(books.guessed_modules, std::max(books.last_module, kLeastModule));
  books.guessed_modules -= give_back(dev, books, kind, guess);
}

void note_untracked_growth() {
  Untracked *state = untracked_books();
  if (state == nullptr || untracked_unsettled.load(std::memory_order_relaxed)) return;
  measure_soon(*state);
  untracked_unsettled.store(true, std::memory_order_relaxed);
}

void untrack_data(unsigned dev, std::uint64_t bytes) {
  Untracked *state = untracked_books();
  if (state == nullptr) return;
  UntrackedBooks &books = state->devices[dev];
  ScopedLock lock(books.mutex);
  books.charge_of(Kind::data) += bytes;
  ++books.generation;
  measure_soon(*state);
  untracked_unsettled.store(true, std::memory_order_relaxed);
  untracked_data_waits.store(true, std::memory_order_relaxed);
}

void give_back_what_was_freed() {
  Untracked *state = untracked_books();
  if (state == nullptr || mode() != Mode::active) return;
  untracked_data_waits.store(false, std::memory_order_relaxed);
  for (unsigned dev = 0; dev < job_region().ndev(); ++dev) {
    UntrackedBooks &books = state->devices[dev];
    ScopedLock lock(books.mutex);
    if (books.never) give_back(dev, books, Kind::data, ~std::uint64_t{0});
    if (books.charge_of(Kind::data) != 0) untracked_data_waits.store(true, std::memory_order_relaxed);
  }
}

namespace {

bool settle_own_before_refusing(unsigned dev) {
  Untracked *state = untracked_books();
  if (state == nullptr) return false;
  UntrackedBooks &books = state->devices[dev];
  std::uint64_t before = 0;
  bool may_be_gone = untracked_unsettled.load(std::memory_order_relaxed);
  std::uint64_t oldest = look_pause_ms(dev);
  {
    ScopedLock lock(books.mutex);
    before = books.total();
    // Contexts and modules do not go unseen; what else was there at the last look may be gone, and a guess was too much.
    const bool lasts =
        books.guessed + books.slack == 0 && before == books.charge_of(Kind::context) + books.charge_of(Kind::module);
    if (!may_be_gone) oldest = std::max(oldest, kRefusalMs);
    may_be_gone = may_be_gone || !lasts;
  }
  if (!may_be_gone) return false;
  if (ms_since_look(dev) >= oldest) correct(dev, books, {});
  wait_for_nvml(dev, books);
  note_first_context(dev, books);
  ScopedLock lock(books.mutex);
  return books.total() < before;
}

}  // namespace

bool settle_before_refusing(unsigned dev) {
  if (mode() != Mode::active) return false;
  // Each of both: the other ranks may have been charged too much as well.
  const bool own = settle_own_before_refusing(dev);
  return wait_for_siblings(dev) || own;
}

void look_for_reader(unsigned dev) {
  Untracked *state = untracked_books();
  // What is unsettled is worth a look at any time, if looks are cheap.
  if (state != nullptr && ms_since_look(dev) >= look_pause_ms(dev)) settle_device(dev, state->devices[dev]);
}

void settle_due() {
  Untracked *state = untracked_books();
  if (state == nullptr || mode() != Mode::active) return;
  const std::uint64_t now = coarse_ms();
  const std::uint64_t interval = state->interval_ms.load(std::memory_order_relaxed);
  std::uint64_t due = settle_due_ms.load(std::memory_order_relaxed);
  if (now < due || !settle_due_ms.compare_exchange_strong(due, now + interval, std::memory_order_relaxed)) return;
  state->interval_ms.store(std::clamp(2 * interval, kFirstIntervalMs, kLastIntervalMs), std::memory_order_relaxed);
  untracked_unsettled.store(false, std::memory_order_relaxed);  // correct() says so again where it must
  std::uint64_t pause = interval;
  for (unsigned dev = 0; dev < job_region().ndev(); ++dev) {
    settle_device(dev, state->devices[dev]);
    pause = std::max(pause, look_pause_ms(dev));
  }
  if (pause > interval) settle_due_ms.store(coarse_ms() + pause, std::memory_order_relaxed);
}

}  // namespace vgpu::runtime
