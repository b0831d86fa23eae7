// What a job really uses of a GPU, from what its region is charged: blocks that are charged ahead and hold nothing do not count.
#pragma once

#include <algorithm>
#include <cstdint>

#include "region/region.h"

namespace vgpu::node {

// Charged to that rank, of Kind::other, and used for nothing.
inline std::uint64_t idle_memory(const region::Snapshot &region, unsigned rank_index, unsigned dev) {
  std::uint64_t charged = 0;
  for (unsigned kind = 0; kind < region::kKinds; ++kind)
    charged += region.memory(rank_index, dev, static_cast<region::Kind>(kind));
  const region::RestMark &mark = region.mark(rank_index, dev);
  return charged - std::min(charged, mark.bytes_beside_context() + mark.context_bytes());
}

inline std::uint64_t used_memory(const region::Snapshot &region, unsigned rank_index, unsigned dev, region::Kind kind) {
  const std::uint64_t charged = region.memory(rank_index, dev, kind);
  return kind == region::Kind::other ? charged - std::min(charged, idle_memory(region, rank_index, dev)) : charged;
}

// By the whole job, without ranks that are gone, if the snapshot asked who is.
inline std::uint64_t used_memory(const region::Snapshot &region, unsigned dev) {
  std::uint64_t used = region.device(dev).memory_living;
  for (unsigned i = 0; i < region.ranks(); ++i) {
    if (region.rank(i).verdict == region::Verdict::alive) used -= std::min(used, idle_memory(region, i, dev));
  }
  return used;
}

}  // namespace vgpu::node
