// What this process's kernels and graphs cost in GPU time, learned from a few launches of each.
//
// A launch is known by its function and its size, a graph by itself. What is measured is the time between two events
// around a launch. That is the launch's own time if nothing else was on the device; otherwise it can only be too long. So
// the mean of measurements that were `alone` counts, which is right for kernels that take now this long, now that long.
// Where other jobs are on the device none is, and the least of the last few counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace vgpu::sm {

inline constexpr std::uint64_t kLeastCostNs = 20;  // so that there is always something to count
inline constexpr std::uint64_t kLargestCostNs = 1'000'000'000'000;
// What is launched for the first time is charged this, and the rest of it given back when it was measured: until then
// hardly anything else of the job gets onto the device and into its way.
inline constexpr std::uint64_t kFirstGuessNs = 25'000'000;

// Written by whoever measured, one at a time, except for the key and the guesses; read by every launch.
struct alignas(64) Cost {
  std::atomic<std::uint64_t> key;          // 0: free; by CAS, once
  std::atomic<std::uint64_t> settled_ns;   // 0: not enough is known of it yet
  std::atomic<std::uint64_t> estimate_ns;  // 0: nothing is known of it
  std::atomic<std::uint64_t> mean_ns;      // of measurements that were alone; until there are any, the middle of all
  std::atomic<std::uint64_t> least_ns;     // of the measurements since `samples` was last a multiple of kWindow
  std::atomic<std::uint64_t> least_before_ns;
  std::atomic<std::uint32_t> samples;
  std::atomic<std::uint32_t> alone;  // how many of them were
  // Launches that were charged a guess, which is put right when the first of them was measured. By any thread.
  alignas(64) std::atomic<std::uint64_t> guessed_ns;
  std::atomic<std::uint64_t> guessed;
  std::atomic<std::uint64_t> guessed_at_ns;  // the first of them
  std::atomic<std::uint64_t> reference_ns;   // the estimate when it was last revised
  std::atomic<Cost *> family;                // the same function in any size
  std::atomic<std::uint32_t> under_way;      // measurements
};

// What the host did around a measured launch.
struct HostSide {
  bool was_idle;  // the stream had nothing to do before the first event
  bool idle;      // nor before the launch
  // When the host took the first event, had taken it, was about to launch, had launched, and had taken the second.
  std::uint64_t opened_ns, recorded_ns, ready_ns, launched_ns, closed_ns;
};
// How long the device took for a launch whose two events are so far apart. `known_ns`: as far as is known, or 0.
std::uint64_t device_time(const HostSide &host, std::uint64_t elapsed_ns, std::uint64_t known_ns);

struct Measurement {
  std::uint64_t elapsed_ns = 0;
  std::uint64_t charged_ns = 0;
  bool alone = false;   // on the device, as far as the job knows
  bool shared = false;  // with other jobs
};

class Costs {
 public:
  // What a launch is known by. `blocks` is the size of its grid, `threads` that of a block.
  static std::uint64_t key(const void *function, std::uint64_t blocks, std::uint64_t threads) {
    const auto handle = reinterpret_cast<std::uintptr_t>(function);
    return (handle ^ blocks * 0x9e3779b97f4a7c15 ^ threads * 0xc2b2ae3d27d4eb4f) | 1;
  }

  // Null: it takes a closer look.
  Cost *find_at_once(const void *function, std::uint64_t blocks, std::uint64_t threads) {
    const std::uint64_t wanted = key(function, blocks, threads);
    Cost &home = entries_[place(wanted)];
    return home.key.load(std::memory_order_relaxed) == wanted ? &home : nullptr;
  }
  // Never fails: what there is no room for shares an entry with something else.
  Cost &find(const void *function, std::uint64_t blocks, std::uint64_t threads) {
    Cost *cost = find_at_once(function, blocks, threads);
    return cost != nullptr ? *cost : look_for(key(function, blocks, threads), key(function, 0, 0));
  }

  // What is known of a launch: its cost, or that of the same function in another size. 0: nothing.
  static std::uint64_t estimate(const Cost &cost);
  // What to charge a launch of which nothing is known.
  static std::uint64_t guess(const Cost &cost, std::uint64_t now_ns);
  static void note_guess(Cost &cost, std::uint64_t guess_ns, std::uint64_t now_ns);

  // What a launch of this process costs; 0: unknown.
  std::uint64_t typical_ns() const { return typical_ns_.load(std::memory_order_relaxed); }
  // Changes when much of what was known proved wrong: what launches were charged before tells nothing of what they are now.
  std::uint32_t revisions() const { return revisions_.load(std::memory_order_relaxed); }

  // Returns what the launches so far were charged too little, or, negative, too much.
  std::int64_t learn(Cost &cost, const Measurement &measured);

 private:
  static constexpr unsigned kBits = 12;
  static constexpr unsigned kHashShift = 64 - kBits;
  static constexpr unsigned kProbes = 16;
  static constexpr std::uint32_t kWindow = 64;  // measurements among other jobs, of which few meet none of theirs
  static constexpr std::uint32_t kEnough = 8;   // of any kind, to go by

  static std::size_t place(std::uint64_t key) { return key * 0x9e3779b97f4a7c15 >> kHashShift; }
  Cost &look_for(std::uint64_t key, std::uint64_t family_key);

  std::atomic<std::uint32_t> revisions_;
  std::atomic<std::uint64_t> typical_ns_;  // of a launch of this process
  Cost entries_[std::size_t{1} << kBits];
};

}  // namespace vgpu::sm
