// What the ranks of the stress test hold, by their own account, in memory that all of them share.
//
// A rank writes down an allocation AFTER the call that made it has succeeded, and crosses it out BEFORE it calls for it
// to be freed. So all that is written down at any instant is held at that instant, and its sum may never exceed the limit:
// not by a byte, not for a moment.
#pragma once

#include <atomic>
#include <cstdint>

namespace vgpu::test {

inline constexpr unsigned kStressRanks = 64;
inline constexpr unsigned kStressDevices = 2;
inline constexpr int kLedgerDescriptor = 3;

// changes:24 | blocks:40 in one word: whoever stops or kills the rank never finds it between two.
constexpr std::uint64_t blocks_in(std::uint64_t word) { return word & ((std::uint64_t{1} << 40) - 1); }
constexpr std::uint64_t changed_to(std::uint64_t word, std::uint64_t blocks) {
  return ((word >> 40) + 1) << 40 | blocks;
}

struct alignas(64) RankLedger {
  // The rank; once it is stopped for good, the controller.
  std::atomic<std::uint64_t> held[kStressDevices];
  // The rank. Never reset.
  std::atomic<std::uint64_t> operations, allocations, refusals, checks;
  std::atomic<bool> hides;  // the rank, before its first allocation: it uses what only a measurement finds
};

struct Ledger {
  std::uint64_t limit_blocks;
  std::atomic<bool> stop;                           // the controller: ranks shall end
  std::atomic<std::uint64_t> most[kStressDevices];  // anybody; the largest sum that was seen
  RankLedger ranks[kStressRanks];

  void set(unsigned rank, unsigned dev, std::uint64_t blocks) {
    std::atomic<std::uint64_t> &word = ranks[rank].held[dev];
    word.store(changed_to(word.load(), blocks));
  }
  // The sum at one instant: no word changed between two looks at all of them. False: some did.
  bool sum(unsigned dev, std::uint64_t *blocks) const {
    std::uint64_t first[kStressRanks];
    for (unsigned rank = 0; rank < kStressRanks; ++rank) first[rank] = ranks[rank].held[dev].load();
    *blocks = 0;
    for (unsigned rank = 0; rank < kStressRanks; ++rank) {
      if (ranks[rank].held[dev].load() != first[rank]) return false;
      *blocks += blocks_in(first[rank]);
    }
    return true;
  }
  // Looks, and remembers the largest sum.
  bool look(unsigned dev) {
    std::uint64_t blocks = 0;
    if (!sum(dev, &blocks)) return false;
    std::uint64_t seen = most[dev].load();
    while (blocks > seen && !most[dev].compare_exchange_weak(seen, blocks)) continue;
    return true;
  }
};

}  // namespace vgpu::test
