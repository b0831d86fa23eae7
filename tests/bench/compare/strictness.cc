#include <functional>

#include "../oracle.h"
#include "../pairs.h"
#include "measure.h"

namespace bench {
namespace {

constexpr std::uint64_t kStorm = 600 * kMillisecond;

struct Stage {
  Gate gate;
  std::atomic<bool> stop{false};
  Oracle oracle;
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> approximate{0};
  std::atomic<std::uint64_t> tries{0};

  bool goes_on() const { return !stop.load(std::memory_order_relaxed); }
};

// 8 processes at once, each `act`s until its stage says stop.
void storm(Stage &stage, Scheme &scheme, const std::function<void(unsigned index)> &act) {
  Group group(kCrowd, [&](unsigned index) {
    scheme.attach(index);
    stage.gate.pass();
    act(index);
  });
  stage.gate.release(kCrowd);
  sleep_ns(kStorm);
  stage.stop.store(true, std::memory_order_relaxed);
  group.join();
}

// Room for 5 pieces; the 8 want up to 32.
void measure_overshoot(const Candidate &candidate, Strictness *result) {
  constexpr std::uint64_t kLimit = 5 * kPairBytes;
  Shared<Stage> stage;
  const auto scheme = candidate.make(kLimit);
  storm(*stage, *scheme, [&](unsigned index) {
    Greedy greedy(index, kPairBytes, kLimit);
    while (stage->goes_on()) greedy.step(*scheme, stage->oracle);
    greedy.finish(*scheme, stage->oracle);
  });
  result->over_bytes = stage->oracle.over_bytes();
  result->over_grants = stage->oracle.over_grants();
  result->grants = stage->oracle.grants();
}

// One looks, seven write.
void measure_tearing(const Candidate &candidate, Strictness *result) {
  Shared<Stage> stage;
  const auto scheme = candidate.make(2 * kCrowd * kPairBytes);
  const auto write = [&] {
    if (scheme->reserve(kPairBytes)) scheme->release(kPairBytes);
  };
  const auto look = [&] {
    const Picture picture = scheme->picture();
    stage->tries.fetch_add(1, std::memory_order_relaxed);
    if (!picture.exact) {
      stage->approximate.fetch_add(1, std::memory_order_relaxed);
    } else if (picture.total != picture.parts) {
      stage->wrong.fetch_add(1, std::memory_order_relaxed);
    }
  };
  storm(*stage, *scheme, [&](unsigned index) {
    while (stage->goes_on()) index == 0 ? look() : write();
  });
  result->torn = stage->wrong;
  result->approximate = stage->approximate;
  result->pictures = stage->tries;
}

}  // namespace

Strictness measure_strictness(const Candidate &candidate) {
  Strictness result;
  measure_overshoot(candidate, &result);
  measure_tearing(candidate, &result);
  return result;
}

}  // namespace bench
