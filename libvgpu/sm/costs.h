// What this process's kernels and graphs cost in GPU time ("cost" as token buckets use the word), one by one, learned
// from a few launches of each. What a launch is charged in the end is measured otherwise, see batch.h: costs only say how
// many launches may follow each other before that, and how much of a batch with pauses was work.
//
// A launch is identified by its function, its block and the order of magnitude of its grid, in quarters of an octave; a
// graph by itself.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace vgpu::sm {

// No measurement counts as less. An estimate of 0 means "nothing is known", so that a launch measured as 0 ns would be
// charged the guess for ever; and decide() divides by it. More than some tens of nanoseconds would overcharge the
// shortest launches.
inline constexpr std::uint64_t kLeastCostNs = 20;
// No measurement counts as more: 1000 s. Without it a wrong time of an event would leave the job a debt without end.
// Smaller than the longest kernel, it would make that kernel too cheap.
inline constexpr std::uint64_t kLargestCostNs = 1'000'000'000'000;
// The first launch of something unknown is charged this, and what was too much is given back once the device is done
// with it. It never grows: however long that takes, a launch waits for no more than this divided by the share. Smaller,
// kernels of several ranks that are new at the same time pile up on the device before anything is known of them. Larger:
// where the first mark is late the job waits longer.
inline constexpr std::uint64_t kFirstGuessNs = 25'000'000;

// What identifies a launch. Never 0.
struct LaunchKey {
  std::uint64_t key = 0;
  std::uint64_t function = 0;  // the same for all its sizes
  unsigned size = 0;           // see size_class()
};

// The order of magnitude of a number of blocks: four to an octave.
constexpr unsigned size_class(std::uint64_t blocks) {
  const auto octave = static_cast<unsigned>(std::bit_width(blocks | 1) - 1);
  return octave * 4 + static_cast<unsigned>(blocks << 2 >> octave & 3);
}

// Written by the thread that reads marks, one at a time, except for what is marked; read by every launch. A launch that
// comes while an entry goes over to another launch may be paid with the other's cost: once, and it is put right with its
// batch.
struct alignas(64) Cost {
  std::atomic<std::uint64_t> key;          // 0: free; by who has the table locked
  std::atomic<std::uint64_t> settled_ns;   // 0: to be measured before it is paid from a credit
  std::atomic<std::uint64_t> estimate_ns;  // 0: nothing is known of it
  std::atomic<std::uint64_t> least_ns;     // of the measurements since `samples` was last a multiple of kWindow
  std::atomic<std::uint64_t> least_before_ns;
  std::atomic<std::uint64_t> used_ns;  // when a launch last looked for it and left the fast path; any thread
  std::atomic<std::uint32_t> samples;
  std::atomic<std::uint32_t> guesses;  // launches that were charged a guess; any thread
};
static_assert(sizeof(Cost) == 64);

// Who else uses the device, whose time may be measured as well.
enum class Company : std::uint8_t { none, ranks, jobs };

class Costs {
 public:
  // `blocks` is the size of the grid, `threads` that of a block.
  static std::uint64_t key(const void *function, std::uint64_t blocks, std::uint64_t threads) {
    return (reinterpret_cast<std::uintptr_t>(function) ^ (size_class(blocks) | threads << 8) * kMix) | 1;
  }
  static LaunchKey launch_key(const void *function, std::uint64_t blocks, std::uint64_t threads) {
    return {key(function, blocks, threads), reinterpret_cast<std::uintptr_t>(function) | 1, size_class(blocks)};
  }

  // Looks only where the key belongs, for the fast path. Null: it may still be in one of the next slots.
  const Cost *find_in_home_slot(std::uint64_t key) const {
    const Cost &home = entries_[place(key)];
    return home.key.load(std::memory_order_relaxed) == key ? &home : nullptr;
  }
  // Null: nothing is known of it, or no more.
  Cost *find(std::uint64_t key);
  // Makes room for what is new in place of what was not used for longest. Never fails: a thread that finds the table
  // locked uses an entry that is not its own, once.
  Cost &find_or_insert(std::uint64_t key, std::uint64_t now_ns);

  // The estimate of a launch, or that of the same function in the nearest size, scaled. 0: nothing is known.
  std::uint64_t estimate(const Cost &cost, const LaunchKey &launch) const;
  // What to charge a launch of which nothing is known.
  static std::uint64_t guess(const Cost &cost);

  void learn(const LaunchKey &launch, std::uint64_t took_ns, Company company);

  // Handles may be those of something else from now on, of one launch or of any: it is measured anew before it is
  // believed.
  void doubt(std::uint64_t key);
  void doubt_all();

  // What a launch of this process typically costs; 0: unknown.
  std::uint64_t typical_ns() const { return typical_ns_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;
  // The table has 4096 entries, for the functions of a process in all their sizes. In a table that is too small launches
  // are forgotten while they are still used; each bit more doubles the 256 KiB that a process with a limit reserves (it
  // touches only the entries that it uses).
  static constexpr unsigned kBits = 12;
  static constexpr unsigned kHashShift = 64 - kBits;
  // In how many slots a key can be, from where it belongs. More would make slow paths slower; with fewer, launches drive
  // each other out while there is still room.
  static constexpr unsigned kProbes = 8;
  // What is remembered of a function for sizes that are new.
  struct Family {
    static constexpr unsigned kSizes = 4;
    std::atomic<std::uint64_t> function;       // 0: none
    std::atomic<std::uint64_t> sizes[kSizes];  // cost:56 | size:8 of the last sizes that were measured; 0: none
    std::atomic<std::uint32_t> next;
  };
  static constexpr unsigned kFamilyBits = 10;
  // Among other jobs the least of the last 64 to 128 measurements counts, as few meet no work of theirs. Fewer hold
  // less often one that met none, and the job is charged the others' time. More: a kernel that became slower is charged
  // too little for longer (512 measurements are at least 2.5 s, see kMeasureEveryNs).
  static constexpr std::uint32_t kWindow = 64;

  static std::size_t place(std::uint64_t key) { return key * kMix >> kHashShift; }
  Cost &slot(std::uint64_t key, unsigned probe) { return entries_[(place(key) + probe) & ((1u << kBits) - 1)]; }
  Family &family_slot(std::uint64_t function) { return families_[function * kMix >> (64 - kFamilyBits)]; }
  void learn_family(const LaunchKey &launch, std::uint64_t cost_ns);

  std::atomic<bool> locked_;  // an entry goes over to another launch; tried, never waited for
  std::atomic<std::uint64_t> typical_ns_;
  Cost entries_[std::size_t{1} << kBits];
  Family families_[std::size_t{1} << kFamilyBits];
};

}  // namespace vgpu::sm
