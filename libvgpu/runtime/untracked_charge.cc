// UntrackedCharge: what a call takes that makes a context or loads a module.
#include "base/clock.h"
#include "correction.h"
#include "reserve.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

using region::Kind;

namespace {

// What is measured at once need not be guessed.
std::uint64_t expected_module(unsigned dev) {
  Untracked *state = untracked_books();
  if (state == nullptr) return 0;
  UntrackedBooks &books = state->devices[dev];
  const std::uint64_t least = deserves_look(dev, books) ? 0 : kLeastModule;
  ScopedLock lock(books.mutex);
  return std::max(books.last_module, least);
}

// What a module may take that nobody can measure yet, beyond the `own` bytes that are reserved for it. False: it is more than
// is left.
bool reserve_slack(unsigned dev, UntrackedBooks &books, std::uint64_t own) {
  ScopedLock lock(books.mutex);
  if (books.never || books.waited) return true;
  const std::uint64_t reserved = books.guessed_modules + own + books.slack;
  const std::uint64_t exposure = books.exposure(books.unlooked_modules + 1);
  if (exposure <= reserved) return true;
  const std::uint64_t more = exposure - reserved;
  if (rank().try_to_reserve(dev, Kind::context, more) != region::Grant::granted) return false;
  books.charge_of(Kind::context) += more;
  books.slack += more;
  ++books.generation;
  return true;
}

}  // namespace

UntrackedCharge::Reserving::Reserving(unsigned dev) : dev_(dev) {
  Untracked *state = untracked_books();
  if (state == nullptr) return;
  ScopedLock lock(state->devices[dev_].mutex);
  ++state->devices[dev_].reserving;
}

UntrackedCharge::Reserving::~Reserving() {
  Untracked *state = untracked_books();
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
  Untracked *state = untracked_books();
  if (state == nullptr) {
    rank().take_back(dev_, kind_, bytes);
    return;
  }
  UntrackedBooks &books = state->devices[dev_];
  ScopedLock lock(books.mutex);
  books.charge_of(kind_) += bytes;
  books.in_progress += bytes;
  ++books.generation;
  reserved_ = bytes;
  granted_ = true;
}

void UntrackedCharge::cancel() {
  UntrackedBooks &books = untracked_books()->devices[dev_];
  ScopedLock lock(books.mutex);
  books.in_progress -= reserved_;
  give_back(dev_, books, kind_, reserved_, Was::never_there);
  ++books.generation;
  reserved_ = 0;
}

// A module that nobody measured takes a block at least.
bool UntrackedCharge::reserve_least() {
  if (reserved_ >= kLeastModule) return true;
  const std::uint64_t more = kLeastModule - reserved_;
  if (!reserve_memory(dev_, kind_, more)) return false;
  UntrackedBooks &books = untracked_books()->devices[dev_];
  ScopedLock lock(books.mutex);
  books.charge_of(kind_) += more;
  books.in_progress += more;
  ++books.generation;
  reserved_ += more;
  return true;
}

UntrackedCharge::Settled UntrackedCharge::settle(Patience patience) {
  Untracked &state = *untracked_books();
  UntrackedBooks &books = state.devices[dev_];
  std::uint64_t before = 0;
  {
    ScopedLock lock(books.mutex);
    before = books.total() - reserved_;
  }
  if (kind_ == Kind::context) measure_soon(state);
  const Correction correction = {kind_, IfOver::refuse, 0, reserved_, 0};
  const std::uint64_t start = monotonic_ns();
  Corrected corrected = Corrected::unknown;
  if (kind_ == Kind::context || deserves_look(dev_, books)) corrected = correct(dev_, books, correction);
  if (corrected == Corrected::unknown && kind_ == Kind::module && !reserve_slack(dev_, books, reserved_)) {
    corrected = wait_for_nvml(dev_, books, correction);
  }
  while (corrected == Corrected::unknown && patience == Patience::bounded && monotonic_ns() - start < kPatienceNs) {
    sleep_until(monotonic_ns() + kPollNs);
    corrected = correct(dev_, books, correction);
  }
  if (corrected == Corrected::over) return Settled::over;
  if (corrected == Corrected::unknown && patience == Patience::bounded) return Settled::unknown;
  measured_ = corrected == Corrected::done;
  if (!measured_ && kind_ == Kind::module && !reserve_least()) return Settled::over;
  {
    ScopedLock lock(books.mutex);
    if (measured_) {
      taken_ = books.total() - std::min(before, books.total());
    } else {
      books.in_progress -= reserved_;
      ++books.generation;
      taken_ = reserved_;
    }
    if (kind_ == Kind::context && !measured_) {
      books.guessed += reserved_;
      books.waited = false;
    }
    if (kind_ == Kind::module && !measured_) {
      books.guessed_modules += taken_;
      ++books.unlooked_modules;
    }
  }
  reserved_ = 0;
  if (!measured_) note_untracked_growth();
  if (kind_ == Kind::context) note_first_context(dev_, books);
  return Settled::yes;
}

}  // namespace vgpu::runtime
