// The lines that run.sh collects in bench.tsv: figure, value, unit, goal, verdict. A goal is an upper bound.
#pragma once

#include <cstdio>

namespace bench {

inline void print_figure(const char *figure, double value, const char *unit, double goal) {
  std::printf("%s\t%.4g\t%s\t%g\t%s\n", figure, value, unit, goal, value <= goal ? "ok" : "short");
  std::fflush(stdout);
}

}  // namespace bench
