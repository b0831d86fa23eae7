// The command line of vgpu-run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node/values.h"

namespace vgpu::run {

struct Options {
  std::uint64_t ranks = 1;
  std::optional<node::MemoryLimits> memory;
  std::optional<std::uint32_t> sm_percent;
  std::uint64_t context = 0;         // bytes that a context takes; 0: as it is known
  std::vector<unsigned> gpus;        // their places among the GPUs of the machine; empty: all of them
  std::string library;               // empty: where it was installed or built
  std::vector<std::string> command;  // never empty
};

// Empty when everything has been said already (--help, a mistake): `*status` is then the exit status.
std::optional<Options> parse_options(int argc, char **argv, int *status);

}  // namespace vgpu::run
