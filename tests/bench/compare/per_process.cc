// Every process counts for itself, by atomics; whoever allocates first adds up what all have. Between the sum and the
// own charge others do the same: check, then act.
#include "board.h"

namespace bench {
namespace {

class PerProcess final : public BoardScheme {
 public:
  using BoardScheme::BoardScheme;

  bool reserve(std::uint64_t bytes) override {
    if (sum_totals() + bytes > limit_ && (sweep() == 0 || sum_totals() + bytes > limit_)) return false;
    charge_own(bytes);
    return true;
  }
  void release(std::uint64_t bytes) override { charge_own(-bytes); }
  std::uint64_t used() override { return sum_totals(); }
  Picture picture() override { return sum_fields(); }
};

}  // namespace

std::unique_ptr<Scheme> make_per_process(const SchemeSetting &setting) { return std::make_unique<PerProcess>(setting); }

}  // namespace bench
