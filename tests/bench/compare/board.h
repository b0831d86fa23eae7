// What all the other schemes have in common: a slot with counters for every process, and how a dead one is noticed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "../shared.h"
#include "scheme.h"

namespace bench {

using Counter = std::atomic<std::uint64_t>;

// A line of its own each, as any sane region has it: the comparison is of protocols, not of false sharing.
struct alignas(64) RankSlot {
  std::atomic<pid_t> pid{0};
  Counter seq{0};  // odd while its rank writes; used by the seqlock alone
  Counter total{0};
  Counter data{0};  // the part of the total that is the program's own; here always all of it
};

struct Board {
  alignas(64) Counter used{0};  // for schemes that keep a total
  alignas(64) std::atomic<unsigned> attached{0};
  RankSlot slots[kMaxRanks];
};

// getpid() is a system call; every scheme would remember.
pid_t own_pid();

// The parent of a benchmark reaps at once, so a pid that is gone is ESRCH, and no pid is reused within a run.
bool is_gone(pid_t pid);

class BoardScheme : public Scheme {
 public:
  explicit BoardScheme(const SchemeSetting &setting) : limit_(setting.limit) {}
  void attach(unsigned slot) override;

 protected:
  RankSlot &own() const { return *own_; }
  // Wraps around for a release: adding `bytes` negated is subtracting them.
  void charge_own(std::uint64_t bytes) const {
    own_->total.fetch_add(bytes, std::memory_order_relaxed);
    own_->data.fetch_add(bytes, std::memory_order_relaxed);
  }
  unsigned attached() const { return board_->attached.load(std::memory_order_acquire); }
  std::uint64_t sum_totals() const;
  Picture sum_fields() const;
  // Empties the slots of dead ranks, each by exactly one caller, and returns the bytes they had.
  std::uint64_t sweep() const;
  // The same for one slot.
  std::uint64_t clear_if_gone(RankSlot &slot) const;

  Shared<Board> board_;
  const std::uint64_t limit_;

 private:
  RankSlot *own_ = nullptr;
};

}  // namespace bench
