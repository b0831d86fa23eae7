// The simulated device's own figure of what processes hold: block by block, whatever any interface says.
#pragma once

#include "judge.h"
#include "simgpu/node/layout.h"

namespace vgpu::truth {

// `of_job(pid)`: whether a process of the host is the job's.
template <typename OfJob>
void read_device(const simgpu::NodeState &node, simgpu::DeviceState &device, OfJob of_job, Reading *reading) {
  reading->held = reading->launched = 0;
  for (std::uint32_t block = 0; block < device.block_count; ++block) {
    const std::uint32_t word = device.owners()[block].load(std::memory_order_relaxed);
    if (word == 0 || !of_job(node.slots[simgpu::owner_slot(word)].host_pid)) continue;
    const simgpu::BlockUse use = simgpu::owner_use(word);
    reading->held += simgpu::kBlockBytes;
    if (use == simgpu::BlockUse::kCode || use == simgpu::BlockUse::kHeap) reading->launched += simgpu::kBlockBytes;
  }
}

}  // namespace vgpu::truth
