// What this process's kernels and graphs cost in GPU time ("cost" as token buckets use the word), learned from a few
// launches of each.
//
// A launch is identified by its function and its size, a graph by itself. What is measured is the time between two
// events around a launch. That is the launch's own time if nothing else was on the device; otherwise it can only be too
// long. So the mean of those measurements counts that were `alone`, which is also right for kernels whose duration
// varies. Where other jobs are on the device no measurement is alone, and the least of the last few counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace vgpu::sm {

// No measurement counts as less. An estimate of 0 means "nothing is known", so that a launch measured as 0 ns would be
// charged the guess for ever; and decide() divides by it. More than some tens of nanoseconds would overcharge the
// shortest launches.
inline constexpr std::uint64_t kLeastCostNs = 20;
// No measurement and no guess counts as more: 1000 s. Without it a wrong time of an event would leave the job a debt
// without end, and `elapsed * count` in learn() could overflow. Smaller than the longest kernel, it would make that
// kernel too cheap.
inline constexpr std::uint64_t kLargestCostNs = 1'000'000'000'000;
// The first launch of something unknown is charged this, and what was too much is given back once the launch is
// measured. Until then the debt keeps nearly everything else of the job off the device, so that the measurement is
// clean. Smaller, kernels that are new at the same time measure each other: with 2 ms, eight ranks that start together
// with kernels of 20 ms get 22 instead of 50 % in their first 3 s in the model (tests/sm). Larger: with 100 ms, a few
// of its random mixes get over 2 points too much, and where the first measurement is late the job waits longer.
inline constexpr std::uint64_t kFirstGuessNs = 25'000'000;

// Written by the thread that reads the timers, one at a time (LaunchTimers::locked), except for the key and the
// guesses; read by every launch.
struct alignas(64) Cost {
  std::atomic<std::uint64_t> key;          // 0: free; by CAS, once
  std::atomic<std::uint64_t> settled_ns;   // 0: not enough is known of it yet to pay for it from a credit
  std::atomic<std::uint64_t> estimate_ns;  // 0: nothing is known of it
  std::atomic<std::uint64_t> mean_ns;      // of measurements that were alone; until there are any, the median of all
  std::atomic<std::uint64_t> least_ns;     // of the measurements since `samples` was last a multiple of kWindow
  std::atomic<std::uint64_t> least_before_ns;
  std::atomic<std::uint32_t> samples;
  std::atomic<std::uint32_t> alone;  // how many of them were
  // Launches that were charged a guess, which is corrected when the first of them was measured. By any thread.
  alignas(64) std::atomic<std::uint64_t> guessed_ns;
  std::atomic<std::uint64_t> guessed;
  std::atomic<std::uint64_t> guessed_at_ns;  // when the one that is being measured was launched
  std::atomic<std::uint64_t> reference_ns;   // the estimate when revisions() last counted it
  std::atomic<Cost *> family;                // the same function in any size
  std::atomic<std::uint32_t> under_way;      // how many measurements are
};

// What the host did around a measured launch, and when.
struct HostTimeline {
  bool idle_before_start;   // the stream had nothing to do before the first event
  bool idle_before_launch;  // nor before the launch
  // When the host was about to record the first event, had recorded it, was about to launch, had launched, and had
  // recorded the second event.
  std::uint64_t start_called_ns, start_returned_ns, launch_called_ns, launch_returned_ns, end_returned_ns;
};
// How long the device took for a launch whose two events are `elapsed_ns` apart. `known_ns`: the estimate so far, or 0.
std::uint64_t device_time(const HostTimeline &host, std::uint64_t elapsed_ns, std::uint64_t known_ns);

struct Measurement {
  std::uint64_t elapsed_ns = 0;
  std::uint64_t charged_ns = 0;
  bool alone = false;   // on the device, as far as the job knows
  bool shared = false;  // with other jobs
};

class Costs {
 public:
  // What a launch is identified by. `blocks` is the size of its grid, `threads` that of a block. Never 0.
  static std::uint64_t key(const void *function, std::uint64_t blocks, std::uint64_t threads) {
    const auto handle = reinterpret_cast<std::uintptr_t>(function);
    return (handle ^ blocks * 0x9e3779b97f4a7c15 ^ threads * 0xc2b2ae3d27d4eb4f) | 1;
  }

  // Looks only where the key belongs, for the fast path. Null: it may still be in one of the next slots.
  Cost *find_in_home_slot(const void *function, std::uint64_t blocks, std::uint64_t threads) {
    const std::uint64_t wanted = key(function, blocks, threads);
    Cost &home = entries_[place(wanted)];
    return home.key.load(std::memory_order_relaxed) == wanted ? &home : nullptr;
  }
  // Never fails: a launch for which there is no room shares an entry with another.
  Cost &find(const void *function, std::uint64_t blocks, std::uint64_t threads) {
    Cost *cost = find_in_home_slot(function, blocks, threads);
    return cost != nullptr ? *cost : find_or_insert(key(function, blocks, threads), key(function, 0, 0));
  }

  // The estimate of a launch, or that of the same function in other sizes. 0: nothing is known.
  static std::uint64_t estimate(const Cost &cost);
  // What to charge a launch of which nothing is known.
  static std::uint64_t guess(const Cost &cost, std::uint64_t now_ns);
  static void note_guess(Cost &cost, std::uint64_t guess_ns, std::uint64_t now_ns);
  // The launch was refused, so that it will not be measured. Nothing if another one of its kind has been meanwhile.
  static void forget_guess(Cost &cost, std::uint64_t guess_ns);

  // What a launch of this process typically costs; 0: unknown.
  std::uint64_t typical_ns() const { return typical_ns_.load(std::memory_order_relaxed); }
  // Counts the estimates that moved far: what was charged before a change says nothing of what is charged after it.
  std::uint32_t revisions() const { return revisions_.load(std::memory_order_relaxed); }

  // Returns by how much the launches so far were charged too little, or, negative, too much.
  std::int64_t learn(Cost &cost, const Measurement &measured);

 private:
  // The table has 4096 entries, for the functions of a process in all their sizes. In a table that is too small
  // launches share entries, and are charged the mean of what is not the same work; each bit more doubles the 512 KiB
  // that a process with a limit reserves (it touches only the entries that it uses).
  static constexpr unsigned kBits = 12;
  static constexpr unsigned kHashShift = 64 - kBits;
  // How many slots a key is searched in from where it belongs, at most. Without a bound, a full table (every size of a
  // kernel is a key) would make each launch search all of it; with fewer, launches share entries while there is still
  // room. Only a launch that found its key in the first slot can be paid on the fast path, so that more would not make
  // launches cheaper.
  static constexpr unsigned kProbes = 16;
  // Among other jobs the least of the last 64 to 128 measurements counts, as few meet no work of theirs. Fewer hold
  // less often one that met none, and the job is charged the others' time: with 8, a job of 30 % with kernels of 200 us
  // beside a job without a limit gets 20 % in the model. More: a kernel that became slower is charged too little for
  // longer (512 measurements are at least 2.5 s, see kMeasureEveryNs).
  static constexpr std::uint32_t kWindow = 64;
  // An estimate is settled, and launches are paid from a credit, after this many measurements of any kind. Absent, a
  // kernel that is never alone would never be settled: the worst of the model's random mixes then gets 70 % of its share
  // instead of 92 %. Fewer: one or two measurements that met other work set what is charged from then on; with 2, the
  // worst of its bursty programs gets 89 % instead of 96 %.
  static constexpr std::uint32_t kEnough = 8;

  static std::size_t place(std::uint64_t key) { return key * 0x9e3779b97f4a7c15 >> kHashShift; }
  Cost &find_or_insert(std::uint64_t key, std::uint64_t family_key);

  std::atomic<std::uint32_t> revisions_;
  std::atomic<std::uint64_t> typical_ns_;  // of a launch of this process
  Cost entries_[std::size_t{1} << kBits];
};

}  // namespace vgpu::sm
