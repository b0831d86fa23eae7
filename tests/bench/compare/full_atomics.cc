// One total for all, by fetch_add; what went over the limit is taken back. Nobody is granted too much, but while one
// takes back, another is refused what fits; and whoever dies between its two counters leaves a total that is wrong for
// ever.
#include "board.h"

namespace bench {
namespace {

class FullAtomics final : public BoardScheme {
 public:
  using BoardScheme::BoardScheme;

  bool reserve(std::uint64_t bytes) override {
    if (!take(bytes)) {
      const std::uint64_t found = sweep();
      if (found == 0) return false;
      board_->used.fetch_sub(found, std::memory_order_relaxed);
      if (!take(bytes)) return false;
    }
    charge_own(bytes);
    return true;
  }
  void release(std::uint64_t bytes) override {
    charge_own(-bytes);
    board_->used.fetch_sub(bytes, std::memory_order_relaxed);
  }
  std::uint64_t used() override { return board_->used.load(std::memory_order_relaxed); }
  Picture picture() override { return {used(), sum_totals()}; }

 private:
  bool take(std::uint64_t bytes) {
    if (board_->used.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_) return true;
    board_->used.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
};

}  // namespace

std::unique_ptr<Scheme> make_full_atomics(const SchemeSetting &setting) {
  return std::make_unique<FullAtomics>(setting);
}

}  // namespace bench
