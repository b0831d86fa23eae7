// Caps, kernels, programs and numbers of ranks, each on a device of its own: what a job gets with a limit and without.
#pragma once

#include <string>
#include <vector>

#include "measure.h"
#include "work.h"

namespace bench {

struct Combination {
  unsigned cap;
  SmProgram program;
  unsigned ranks;
  unsigned lag_ms;
  bool beside = false;  // on the device of the one before it
};

struct Outcome {
  double free = 0;    // percent of the device without a limit
  double capped = 0;  // and with it
  double overshoot(const Combination &of) const { return capped - of.cap; }
  double efficiency(const Combination &of) const;
};

// How long programs run before they are measured, and how long they are.
struct Window {
  std::uint64_t warm_up, measure;
};
inline constexpr Window kLimited = {kSecond, 5 * kSecond}, kFree = {kSecond, kSecond};

// What each has of its device, all of them at the same time: at most as many as the node has lanes.
std::vector<double> run_together(const Session &session, const SmNode &node, const std::vector<Combination> &all,
                                 Limiter limiter, Window window);
Outcome run_one(const Session &session, const Combination &one, const std::string &profile);

// The forty, on a device of each profile.
void measure_combinations(const Session &session);
// Some programs, side by side: without a limit, with a limiter of the kind that others use, with ours.
void measure_peers(const Session &session);

}  // namespace bench
