// What is measured of every scheme. Each function forks the processes it needs and leaves nothing behind.
#pragma once

#include <cstdint>

#include "scheme.h"

namespace bench {

// One entry with where it may put files.
struct Candidate {
  const SchemeEntry &entry;
  const std::string &scratch;

  std::unique_ptr<Scheme> make(std::uint64_t limit) const { return entry.make({limit, scratch}); }
};

struct Speed {
  double pair_ns;        // one process
  double pair_crowd_ns;  // 8 processes; see pairs.h
  double p999_crowd_us;
  double query_ns;    // used(), 8 ranks attached
  double picture_ns;  // picture(), 8 ranks attached
};
Speed measure_speed(const Candidate &candidate);

struct Strictness {
  std::uint64_t over_bytes = 0;   // the most that was granted beyond the limit at one time
  std::uint64_t over_grants = 0;  // how many grants went beyond it
  std::uint64_t grants = 0;
  std::uint64_t torn = 0;         // pictures that claim to be exact and are not
  std::uint64_t approximate = 0;  // pictures that say that they are not exact
  std::uint64_t pictures = 0;
};
Strictness measure_strictness(const Candidate &candidate);

inline constexpr double kPatienceMs = 2000;

// The longest that a rank's pair took while another was stopped at a random instruction. More than kPatienceMs: it was
// not over by then.
double measure_stall_ms(const Candidate &candidate);
// The longest from the end of a rank killed at a random instruction, until another was granted the whole limit.
double measure_recovery_ms(const Candidate &candidate);

}  // namespace bench
