#include "../pairs.h"
#include "measure.h"

namespace bench {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 36;
constexpr std::uint64_t kAlone = 20 * kMillisecond;
constexpr std::uint64_t kTogether = 120 * kMillisecond;

struct Stage {
  Gate attached;
  double pair_ns;
  double query_ns;
  double picture_ns;
};

// One scheme object is shared by all: it was made before the fork, each child attaches its own copy.
auto attach_to(Scheme &scheme) {
  return [&scheme](unsigned index) {
    scheme.attach(index);
    return [&scheme] {
      // There is plenty; but a lock whose wait ended refuses all the same, and a program would try again.
      while (!scheme.reserve(kPairBytes)) {
      }
      scheme.release(kPairBytes);
    };
  };
}

double measure_alone(const Candidate &candidate) {
  const auto scheme = candidate.make(kPlenty);
  Shared<Stage> stage;
  Group group(1, [&](unsigned index) { stage->pair_ns = ns_per_call(attach_to(*scheme)(index), kAlone); });
  group.join();
  return stage->pair_ns;
}

void measure_queries(const Candidate &candidate, Speed *speed) {
  const auto scheme = candidate.make(kPlenty);
  Shared<Stage> stage;
  Group idle(kCrowd - 1, [&](unsigned index) {
    scheme->attach(index);
    scheme->reserve(kPairBytes);
    stage->attached.pass();
  });
  stage->attached.await(kCrowd - 1);
  Group asking(1, [&](unsigned) {
    scheme->attach(kCrowd - 1);
    scheme->reserve(kPairBytes);
    std::uint64_t seen = 0;
    stage->query_ns = ns_per_call([&] { seen |= scheme->used(); }, kAlone);
    stage->picture_ns = ns_per_call([&] { seen |= scheme->picture().total; }, kAlone, 16);
    if (seen != kCrowd * kPairBytes) throw Failure("%llu bytes used?", static_cast<unsigned long long>(seen));
  });
  asking.join();
  speed->query_ns = stage->query_ns;
  speed->picture_ns = stage->picture_ns;
}

}  // namespace

Speed measure_speed(const Candidate &candidate) {
  Speed speed;
  speed.pair_ns = measure_alone(candidate);
  const auto crowded = candidate.make(kPlenty);
  speed.pair_crowd_ns = pair_ns_crowd(kTogether, attach_to(*crowded));
  const auto timed = candidate.make(kPlenty);
  speed.p999_crowd_us = pair_percentile_crowd(0.999, kTogether, attach_to(*timed)) / 1000;
  measure_queries(candidate, &speed);
  return speed;
}

}  // namespace bench
