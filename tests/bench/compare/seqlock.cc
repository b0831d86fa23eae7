// The documents' recommendation: per-process counters under a per-process seqlock, summed before each allocation. Every
// slot is read consistently; the sum of slots read one after the other, and the charge after it, still are
// check-then-act. A memory decision never falls back to a torn value, so a writer that is stopped half-way stops every
// reader.
#include "base/backoff.h"
#include "board.h"

namespace bench {
namespace {

// 5 pauses, then 1, 10 and 100 us.
class Backoff {
 public:
  // True when the writer has been at it for so long that it may be dead.
  bool wait() {
    constexpr std::uint64_t kSleeps[] = {1 * kMicrosecond, 10 * kMicrosecond, 100 * kMicrosecond};
    if (tries_ < kPauses) {
      vgpu::cpu_pause();
      ++tries_;
      return false;
    }
    const unsigned step = tries_ - kPauses;
    sleep_ns(kSleeps[step]);
    if (step + 1 < std::size(kSleeps)) {
      ++tries_;
      return false;
    }
    return true;
  }

 private:
  static constexpr unsigned kPauses = 5;
  unsigned tries_ = 0;
};

class Seqlock final : public BoardScheme {
 public:
  using BoardScheme::BoardScheme;

  bool reserve(std::uint64_t bytes) override {
    if (used() + bytes > limit_ && (sweep() == 0 || used() + bytes > limit_)) return false;
    write(bytes);
    return true;
  }
  void release(std::uint64_t bytes) override { write(-bytes); }
  std::uint64_t used() override { return picture().total; }

  Picture picture() override {
    Picture sum;
    for (unsigned i = 0; i < attached(); ++i) {
      const Picture one = read(board_->slots[i]);
      sum.total += one.total;
      sum.parts += one.parts;
    }
    return sum;
  }

 private:
  void write(std::uint64_t bytes) {
    own().seq.fetch_add(1, std::memory_order_acq_rel);
    charge_own(bytes);
    own().seq.fetch_add(1, std::memory_order_release);
  }

  Picture read(RankSlot &slot) {
    for (Backoff backoff;;) {
      const std::uint64_t before = slot.seq.load(std::memory_order_acquire);
      const Picture picture = {slot.total.load(std::memory_order_acquire), slot.data.load(std::memory_order_acquire)};
      if (before % 2 == 0 && slot.seq.load(std::memory_order_relaxed) == before) return picture;
      if (backoff.wait()) clear_if_gone(slot);
    }
  }
};

}  // namespace

std::unique_ptr<Scheme> make_seqlock(const SchemeSetting &setting) { return std::make_unique<Seqlock>(setting); }

}  // namespace bench
