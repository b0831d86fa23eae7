// Programs nobody chose, for the limiter on a made-up device.
#pragma once

#include <cmath>
#include <random>

#include "model.h"

namespace vgpu::sm::test {

// One job of up to six ranks, with up to six kernels of 10 us to 20 ms, each taking now longer, now shorter.
inline Scenario random_mix(std::mt19937_64 &random, unsigned round) {
  Scenario scenario;
  Program program;
  program.kernels.clear();
  for (std::uint64_t n = 1 + random() % 6; n > 0; --n) {
    program.kernels.push_back(
        static_cast<std::uint64_t>(10'000 * std::pow(10, 3.3 * static_cast<double>(random() % 1000) / 1000)));
  }
  program.streams = 1 + static_cast<unsigned>(random() % 3);
  program.spread = static_cast<double>(random() % 50) / 100;
  const auto cap = static_cast<unsigned>(10 + random() % 81);
  scenario.jobs = {{cap, 1 + static_cast<unsigned>(random() % 6), program}};
  scenario.seed = round;
  scenario.nvml_lag_ns = (170 + random() % 830) * kMs;
  return scenario;
}

}  // namespace vgpu::sm::test
