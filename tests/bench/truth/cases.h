// Programs that were seen to hold more than their limit while the books were in order, each as small as it can be told.
#pragma once

#include <span>

#include "job.h"

namespace vgpu::truth {

// What a case needs of NVML.
enum class Nvml : std::uint8_t {
  needed,   // nobody else knows what its modules take
  helpful,  // without it the books keep what a context might take
  silent,   // its own says nothing
};

struct Case {
  const char *name;
  const char *node;  // lines of the node's description
  Nvml nvml;
  unsigned unused_mib;  // of the limit, at most, when it is done
  void (*run)(const test::Node &node, const Manner &manner, Judge *judge);
};

std::span<const Case> cases();

// On a node of its own.
Judge run_case(const Case &one, const Manner &manner);

}  // namespace vgpu::truth
