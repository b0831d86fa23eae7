#include "coverage.h"

#include <algorithm>
#include <bit>

#include "region/sm_words.h"

namespace vgpu::sm {

namespace {

using region::CoverageWord;
using std::memory_order_relaxed;

constexpr std::uint64_t kQuanta = CoverageWord::kQuanta, kWords = region::kCoverageWords;
// Whole periods that can be remembered at once: the ring, without the word that is begun while the oldest still counts.
constexpr std::uint64_t kLongest = (kWords - 1) * kQuanta;

// An epoch that is ahead by no more than this is a newer one: what is charged now is that much older, 6 s. All others are
// of long ago, as those of a fresh region are. Without the bound half of all epochs would count as newer, and where a job
// was idle for hours, or the machine runs for some, nothing would be remembered.
constexpr std::uint64_t kNewer = 16;

// The quanta of the word that `first` to `last`, both in its period, are.
constexpr std::uint64_t quanta(std::uint64_t first, std::uint64_t last) {
  return (~std::uint64_t{0} >> (63 - (last - first))) << first;
}

// Sets the quanta of a period; returns how many of them had been set. Relaxed: the word is all there is to know.
unsigned set(region::Word &word, std::uint64_t epoch, std::uint64_t bits) {
  std::uint64_t seen = word.load(memory_order_relaxed);
  for (;;) {
    CoverageWord next = CoverageWord::unpack(seen);
    const bool same = next.epoch == epoch;
    if (!same && ((next.epoch - epoch) & CoverageWord::Epoch::kMask) <= kNewer) return 0;
    const std::uint64_t before = same ? next.bits & bits : 0;
    if (before == bits) return static_cast<unsigned>(std::popcount(bits));
    next = {same ? next.bits | bits : bits, epoch};
    if (word.compare_exchange_weak(seen, next.pack(), memory_order_relaxed))
      return static_cast<unsigned>(std::popcount(before));
  }
}

}  // namespace

std::uint64_t cover(region::CoverageWords &coverage, std::uint64_t from_ns, std::uint64_t to_ns) {
  if (to_ns <= from_ns) return 0;
  const std::uint64_t end = (to_ns + kQuantumNs / 2) / kQuantumNs;
  std::uint64_t first = (from_ns + kQuantumNs / 2) / kQuantumNs;
  if (end - first > kLongest) first = end - kLongest;
  std::uint64_t already = 0;
  while (first < end) {
    const std::uint64_t period = first / kQuanta;
    const std::uint64_t next = std::min(end, (period + 1) * kQuanta);
    already += set(coverage.words[period % kWords], (period / kWords) & CoverageWord::Epoch::kMask,
                   quanta(first % kQuanta, (next - 1) % kQuanta));
    first = next;
  }
  const std::uint64_t length = to_ns - from_ns;
  return length - std::min(length, already * kQuantumNs);
}

}  // namespace vgpu::sm
