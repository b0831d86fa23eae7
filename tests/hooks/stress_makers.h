// What the stress tests allocate beside the rows of cases.cc: memory that is the process's and not a context's, by more than
// one call each. Any thread may call these.
#pragma once

#include <span>

#include "cases.h"

namespace vgpu::test {

struct ProcessMaker {
  const char *name;
  CUresult (*make)(std::uint64_t *handle, std::uint64_t bytes, CUdevice on);
  CUresult (*release)(std::uint64_t handle);
  // The library loses sight of it: only NVML knows whether it is there. What is charged for it is not kept apart from what is
  // charged for modules.
  bool hides;
};

std::span<const ProcessMaker> process_makers();

}  // namespace vgpu::test
