#include "untracked_books.h"

#include "base/clock.h"
#include "base/wiped.h"
#include "contexts.h"
#include "imports.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

using region::Kind;

namespace {

constinit WipedOnFork<Untracked> untracked;

}  // namespace

Untracked *untracked_books() { return untracked.get(); }

void measure_soon(Untracked &state) {
  state.interval_ms.store(kFirstIntervalMs, std::memory_order_relaxed);
  settle_due_ms.store(coarse_ms() + kFirstIntervalMs, std::memory_order_relaxed);
}

void adopt_correction(unsigned dev, UntrackedBooks &books) {
  if (books.reserving != 0 || rank().slot() == region::kRootSlot) return;
  const std::uint64_t now = rank().memory_held(dev, Kind::context);
  std::uint64_t &mine = books.charge_of(Kind::context);
  if (now == mine) return;
  correct_context_charges(dev, static_cast<std::int64_t>(now - mine));
  mine = now;
  books.guessed = 0;
  books.slack = 0;
  ++books.generation;
}

std::uint64_t give_back(unsigned dev, UntrackedBooks &books, Kind kind, std::uint64_t bytes, Was was) {
  const std::uint64_t part = std::min(bytes, books.charge_of(kind));
  if (part == 0) return 0;
  if (was == Was::there) {
    rank().release(dev, kind, part);
  } else {
    rank().take_back(dev, kind, part);
  }
  books.charge_of(kind) -= part;
  if (kind == Kind::data) no_longer_charged(dev, part);
  ++books.generation;
  return part;
}

void shrink(unsigned dev, UntrackedBooks &books, Kind first, std::uint64_t bytes, std::uint64_t own) {
  // A guess was never more than that.
  bytes -= give_back(dev, books, first, std::min(bytes, own), Was::never_there);
  if (first != Kind::data && books.guessed != 0) {
    const std::uint64_t part = give_back(dev, books, Kind::context, std::min(bytes, books.guessed), Was::never_there);
    correct_context_charges(dev, -static_cast<std::int64_t>(part));
    bytes -= part;
  }
  bytes -= give_back(dev, books, first, bytes);
  // Untracked data goes at any time, but not with a context or a module.
  if (first == Kind::data || first == Kind::other) bytes -= give_back(dev, books, Kind::data, bytes);
  for (const Kind kind : {Kind::other, Kind::module, Kind::context, Kind::data}) {
    bytes -= give_back(dev, books, kind, bytes);
  }
}

void forget_unlooked(UntrackedBooks &books) {
  books.guessed_modules = 0;
  books.unlooked_modules = 0;
  books.slack = 0;
}

void drop_slack(unsigned dev, UntrackedBooks &books) {
  give_back(dev, books, Kind::context, books.slack, Was::never_there);
  books.slack = 0;
}

void settle_slack(unsigned dev, UntrackedBooks &books, std::uint64_t target) {
  const std::uint64_t without = books.total() - books.slack;
  const std::uint64_t part = std::min(books.slack, target - std::min(target, without));
  // Charged twice for a moment rather than not at all.
  if (part != 0 && rank().force(dev, Kind::module, part) == region::Grant::granted) {
    books.charge_of(Kind::module) += part;
  }
  drop_slack(dev, books);
}

}  // namespace vgpu::runtime
