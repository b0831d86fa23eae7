// Physical memory of the virtual memory calls: charged from cuMemCreate until its last handle and last mapping are gone.
#pragma once

#include <cstdint>

#include "driver/cuda_api.h"

namespace vgpu::runtime {

// Made and charged: `units` on `dev`. False: no memory to remember it.
bool physical_made(CUmemGenericAllocationHandle handle, unsigned dev, std::uint64_t units);
// Another process's, or another name for a piece of ours.
struct Imported {
  std::uint64_t key = 0;  // 0: ours, or no memory to remember it
};
Imported physical_imported(CUmemGenericAllocationHandle handle);
// One handle more: cuMemRetainAllocationHandle, of what is mapped at an address.
void physical_retained(CUmemGenericAllocationHandle handle, std::uint64_t address);
// One handle less, in two steps: once the driver has released the last one, it may give the name to another piece.
// `piece` is a number of ours, 0 for what is not ours.
std::uint64_t physical_releasing(CUmemGenericAllocationHandle handle);
void physical_released(CUmemGenericAllocationHandle handle, std::uint64_t piece, bool released);
void physical_mapped(CUmemGenericAllocationHandle handle, std::uint64_t address, std::uint64_t bytes);
// A range may hold several mappings, side by side.
void physical_unmapped(std::uint64_t address, std::uint64_t bytes);
// Something holds on to it that we do not follow: an array, a multicast object, whoever imports it. When its handles and
// mappings are gone, only measuring tells whether it is gone too.
void physical_shared(CUmemGenericAllocationHandle handle);
void physical_shared_at(std::uint64_t address);
// The same, and another process of the job may be told of it.
void physical_exported(CUmemGenericAllocationHandle handle);

}  // namespace vgpu::runtime
