// What the ranks of sm_bench run: kernels that take a known time, launched as programs launch them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct SmProgram {
  std::string kernels = "2ms";   // 20us, 200us, 2ms, 20ms or mix
  std::string kind = "busy";     // or bursty, streams, graphs, sync
  unsigned blocks_per_20us = 0;  // how large kernels are; 0: one block, however long

  std::vector<std::string> arguments() const { return {"run", kernels, kind, std::to_string(blocks_per_20us)}; }
};

// Such arguments, with the device's ordinal and until when.
inline std::vector<std::string> placed(std::vector<std::string> arguments, unsigned ordinal, std::uint64_t until_ns) {
  arguments.insert(arguments.end(), {std::to_string(ordinal), std::to_string(until_ns)});
  return arguments;
}

// Runs a program until an instant of CLOCK_MONOTONIC; or measures something and prints a number.
int sm_work(const std::vector<std::string> &arguments);

}  // namespace bench
