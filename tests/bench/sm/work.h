// What the ranks of sm_bench run: kernels that take a known time, launched as programs launch them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct SmProgram {
  std::string kernels = "2ms";  // 20us, 200us, 2ms, 20ms or mix
  std::string kind = "busy";    // or bursty, streams, graphs

  std::vector<std::string> arguments(int ordinal, std::uint64_t until_ns) const {
    return {"run", kernels, kind, std::to_string(ordinal), std::to_string(until_ns)};
  }
};

// Runs a program until an instant of CLOCK_MONOTONIC; or measures what a launch costs.
int sm_work(const std::vector<std::string> &arguments);

}  // namespace bench
