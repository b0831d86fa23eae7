// Who notices when processes together hold more than their limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>

namespace bench {

// Knows what processes hold together from what they say, after each grant and before each release. So it never counts
// more than is really held, and whatever it sees above the limit was granted above the limit. Lives in shared memory.
class Oracle {
 public:
  void granted(std::uint64_t bytes, std::uint64_t limit) {
    grants_.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t held = held_.fetch_add(bytes) + bytes;
    if (held <= limit) return;
    over_grants_.fetch_add(1, std::memory_order_relaxed);
    std::uint64_t most = over_bytes_.load();
    while (held - limit > most && !over_bytes_.compare_exchange_weak(most, held - limit)) {
    }
  }
  void about_to_release(std::uint64_t bytes) { held_.fetch_sub(bytes); }

  std::uint64_t grants() const { return grants_.load(); }
  std::uint64_t over_grants() const { return over_grants_.load(); }
  std::uint64_t over_bytes() const { return over_bytes_.load(); }

 private:
  alignas(64) std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> grants_{0};
  std::atomic<std::uint64_t> over_grants_{0};
  std::atomic<std::uint64_t> over_bytes_{0};
};

// A process that takes and gives back at random, up to 4 pieces. Several of them with a limit far below what they want
// are always at the limit, also while most of them are not running. It looks before it asks, as a program that knows
// its free memory does: refusals prove nothing and cost time.
class Greedy {
 public:
  Greedy(unsigned seed, std::uint64_t piece, std::uint64_t limit) : random_(seed + 1), piece_(piece), limit_(limit) {}

  // A Rank has reserve(bytes), true if granted, release(bytes) and used().
  template <class Rank>
  void step(Rank &rank, Oracle &oracle) {
    const bool wants = held_ < kMost && random_() % 2 == 0;
    if (wants && rank.used() + piece_ <= limit_ && rank.reserve(piece_)) {
      oracle.granted(piece_, limit_);
      ++held_;
    } else {
      give_back(rank, oracle);
    }
  }

  // Before the process ends: others may be given what it had, and the oracle must know.
  template <class Rank>
  void finish(Rank &rank, Oracle &oracle) {
    while (held_ != 0) give_back(rank, oracle);
  }

 private:
  static constexpr unsigned kMost = 4;

  template <class Rank>
  void give_back(Rank &rank, Oracle &oracle) {
    if (held_ == 0) return;
    oracle.about_to_release(piece_);
    rank.release(piece_);
    --held_;
  }

  std::minstd_rand random_;
  std::uint64_t piece_;
  std::uint64_t limit_;
  unsigned held_ = 0;
};

}  // namespace bench
