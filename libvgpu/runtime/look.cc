#include "look.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "base/clock.h"
#include "base/wiped.h"
#include "contexts.h"
#include "devices.h"
#include "host_pid.h"
#include "nvml_client.h"
#include "nvml_usage.h"
#include "pool_memory.h"
#include "runtime.h"

namespace vgpu::runtime {

std::atomic<std::uint64_t> reader_due_ms[region::kMaxDevices];

namespace {

constexpr std::uint64_t kReaderMs = 100;

constexpr std::uint64_t kCheapNs = 200'000;
constexpr std::uint64_t kSlowNs = 1'000'000;  // from here on looks are rationed
constexpr std::uint64_t kHungNs = 500'000'000;
constexpr std::uint64_t kSuspensionMs = 10'000;
constexpr std::uint64_t kPauseAfterLook = 9;  // times as long as it took
// A process with a context that NVML says nothing about for so long is one that it never will.
constexpr std::uint64_t kSilenceMs = 2000;
constexpr unsigned kContradictions = 3;

// Of one device. Relaxed throughout, but for lags: hints, each of which stands for itself.
struct Looks {
  std::atomic<std::uint32_t> lagging;
  std::atomic<std::uint32_t> lags_ended;
  std::atomic<std::uint32_t> contradictions;   // one after the other
  std::atomic<std::uint64_t> silent_since_ms;  // 0: it was not
  std::atomic<std::uint64_t> looked_ms;
  std::atomic<std::uint64_t> suspended_until_ms;
  std::atomic<std::uint64_t> cost_ns;  // of a look that nothing delayed; follows a slower NVML slowly
};
struct State {
  Looks devices[region::kMaxDevices];
};
constinit WipedOnFork<State> looks;

Looks *looks_of(unsigned dev) {
  State *state = looks.get();
  return state != nullptr ? &state->devices[dev] : nullptr;
}

// How often the kernel took the processor from this thread.
long preemptions() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// A look during which somebody else had the processor says nothing of NVML, unless it hangs.
void note_cost(unsigned dev, Looks &state, std::uint64_t took_ns, bool undisturbed) {
  const std::uint64_t before = state.cost_ns.load(std::memory_order_relaxed);
  const std::uint64_t slower = before + before / 4 + 1;
  const std::uint64_t cost = before == 0 ? took_ns : std::min(took_ns, slower);
  if (undisturbed) state.cost_ns.store(cost, std::memory_order_relaxed);
  const std::uint64_t now = coarse_ms();
  state.looked_ms.store(now, std::memory_order_relaxed);
  reader_due_ms[dev].store(now + std::max(kReaderMs, look_pause_ms(dev)), std::memory_order_relaxed);
  if (took_ns >= kHungNs) state.suspended_until_ms.store(now + kSuspensionMs, std::memory_order_relaxed);
}

// NVML does not say.
Sight silence(Looks &state) {
  const std::uint64_t now = coarse_ms();
  std::uint64_t since = 0;
  if (state.silent_since_ms.compare_exchange_strong(since, now, std::memory_order_relaxed)) return Sight::later;
  return now - since >= kSilenceMs ? Sight::never : Sight::later;
}

struct Books {
  Recorded known;
  std::uint64_t held;
  std::uint32_t lags_ended;
  bool lagging;

  bool operator==(const Books &) const = default;
};

Books read_books(const Looks &state, unsigned dev) {
  // Acquire: whoever ended a lag has mended the table before.
  const std::uint32_t ended = state.lags_ended.load(std::memory_order_acquire);
  const bool lagging = state.lagging.load(std::memory_order_acquire) != 0;
  return {recorded(dev), held_without_idle(dev), ended, lagging};
}

std::uint64_t beyond(std::uint64_t seen_units, std::uint64_t units) {
  return seen_units > units ? region::bytes_of(seen_units - units) : 0;
}

// Less than what is allocated for certain, while nothing happens: then it is not about us. Once may be NVML's mistake.
void contradict(Looks &state) {
  if (state.contradictions.fetch_add(1, std::memory_order_relaxed) + 1 < kContradictions) return;
  state.contradictions.store(0, std::memory_order_relaxed);
  doubt_host_pid();
}

}  // namespace

BooksLag::BooksLag(int dev) : dev_(dev) {
  if (dev_ == kNotInJob) return;
  rank().begin_context(static_cast<unsigned>(dev_));
  if (Looks *state = looks_of(static_cast<unsigned>(dev_))) state->lagging.fetch_add(1, std::memory_order_acq_rel);
}

BooksLag::~BooksLag() {
  if (dev_ == kNotInJob) return;
  if (Looks *state = looks_of(static_cast<unsigned>(dev_))) {
    // In this order: whoever sees nothing lagging any more sees that something did.
    state->lags_ended.fetch_add(1, std::memory_order_release);
    state->lagging.fetch_sub(1, std::memory_order_release);
  }
  rank().end_context(static_cast<unsigned>(dev_));
}

std::uint64_t held_without_idle(unsigned dev) {
  const std::uint64_t held = rank().memory_held(dev);
  return held - std::min(held, rank().idle(dev));
}

Look look_at(unsigned dev) {
  Looks *state = looks_of(dev);
  Look look;
  look.sight = Sight::never;
  if (state == nullptr) return look;
  // Pools shrink inside the driver, at anybody's synchronisation; what they hold is asked before and after.
  open_nvml(dev);
  recheck_pools_when_due();
  const Books before = read_books(*state, dev);
  const long preempted = preemptions();
  const std::uint64_t start = monotonic_ns();
  std::uint64_t bytes = 0;
  const NvmlUsage usage = query_nvml_usage(dev, before.held, &bytes);
  note_cost(dev, *state, monotonic_ns() - start, preemptions() == preempted);
  recheck_pools_when_due();

  look.sight = Sight::later;
  look.seen = bytes;
  look.known = before.known;
  look.held = before.held;
  const std::uint64_t certain = before.known.units - before.known.elastic_units;
  const bool is_gone = usage == NvmlUsage::not_listed && live_contexts(dev) == 0 && certain == 0;
  if (usage == NvmlUsage::unknown) {
    look.sight = Sight::never;
    return look;
  }
  if (usage != NvmlUsage::known && !is_gone) {
    look.sight = silence(*state);
    return look;
  }
  state->silent_since_ms.store(0, std::memory_order_relaxed);
  const std::uint64_t seen = region::units_for(bytes);
  const bool quiet = !before.lagging && read_books(*state, dev) == before;
  if (!quiet) return look;
  // A context takes something, too.
  if (seen < certain || (seen == certain && live_contexts(dev) != 0)) {
    contradict(*state);
    return look;
  }
  state->contradictions.store(0, std::memory_order_relaxed);
  look.sight = Sight::known;
  look.least = beyond(seen, before.known.units);
  look.most = beyond(seen, certain);
  return look;
}

bool looks_are_cheap(unsigned dev) {
  const Looks *state = looks_of(dev);
  return state != nullptr && state->cost_ns.load(std::memory_order_relaxed) <= kCheapNs;
}

bool looks_are_suspended(unsigned dev) {
  const Looks *state = looks_of(dev);
  return state != nullptr && coarse_ms() < state->suspended_until_ms.load(std::memory_order_relaxed);
}

std::uint64_t ms_since_look(unsigned dev) {
  const Looks *state = looks_of(dev);
  return state != nullptr ? coarse_ms() - state->looked_ms.load(std::memory_order_relaxed) : 0;
}

std::uint64_t look_pause_ms(unsigned dev) {
  const Looks *state = looks_of(dev);
  const std::uint64_t cost = state != nullptr ? state->cost_ns.load(std::memory_order_relaxed) : 0;
  return cost < kSlowNs ? 0 : kPauseAfterLook * cost / 1'000'000;
}

}  // namespace vgpu::runtime
