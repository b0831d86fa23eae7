// The lines that run.sh collects in bench.tsv: figure, value, unit, goal, verdict. A goal is an upper bound, mostly.
#pragma once

#include <cstdio>

namespace bench {

inline void print_figure(const char *figure, double value, const char *unit, double goal) {
  std::printf("%s\t%.4g\t%s\t%g\t%s\n", figure, value, unit, goal, value <= goal ? "ok" : "short");
  std::fflush(stdout);
}

// A goal that is a lower bound.
inline void print_least(const char *figure, double value, const char *unit, double goal) {
  std::printf("%s\t%.4g\t%s\t%g\t%s\n", figure, value, unit, goal, value >= goal ? "ok" : "short");
  std::fflush(stdout);
}

}  // namespace bench
