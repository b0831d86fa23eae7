// What a job really uses of a GPU, from what its region is charged.
#pragma once

#include <algorithm>
#include <cstdint>

#include "region/region.h"

namespace vgpu::node {

// Without ranks that are gone, if the snapshot asked who is, and without blocks that are charged ahead and hold nothing.
inline std::uint64_t used_memory(const region::Snapshot &region, unsigned dev) {
  std::uint64_t used = region.device(dev).memory_living;
  for (unsigned i = 0; i < region.ranks(); ++i) {
    if (region.rank(i).verdict != region::Verdict::alive) continue;
    std::uint64_t charged = 0;
    for (unsigned kind = 0; kind < region::kKinds; ++kind)
      charged += region.memory(i, dev, static_cast<region::Kind>(kind));
    const region::RestMark &mark = region.mark(i, dev);
    const std::uint64_t held = mark.bytes_beside_context() + mark.context_bytes();
    used -= std::min(used, charged - std::min(charged, held));
  }
  return used;
}

}  // namespace vgpu::node
