// What NVML shows the job of its GPUs' memory: its limit as the size, its own use as what is taken.
#include <algorithm>

#include "driver/nvml_call.h"
#include "driver/table.h"
#include "runtime/devices.h"
#include "runtime/runtime.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

// NVML's three figures add up, so they are ours as soon as the size is.
template <typename Memory>
void show_memory(nvmlDevice_t device, Memory *memory) {
  const int dev = region_device(device);
  if (dev == kNotInJob || !is_limited(static_cast<unsigned>(dev))) return;
  const std::uint64_t limit = job_region().memory_limit(static_cast<unsigned>(dev));
  if (limit >= memory->total) return;
  memory->total = limit;
  memory->used = std::min<std::uint64_t>(rank().memory_used(static_cast<unsigned>(dev)), limit);
  memory->free = limit - memory->used;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  const NvmlCall call;
  const nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
  if (result == NVML_SUCCESS && call.is_the_programs() && mode() == Mode::active) show_memory(device, memory);
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  const NvmlCall call;
  const nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  if (result != NVML_SUCCESS || !call.is_the_programs() || mode() != Mode::active) return result;
  const unsigned long long size = memory->total;
  show_memory(device, memory);
  if (memory->total != size) memory->reserved = 0;
  return result;
}

// The window through which the host sees the device's memory. NVML does not know by process who uses it: the job is shown
// as much of that as it has of the window.
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
  const NvmlCall call;
  const nvmlReturn_t result = REAL(nvmlDeviceGetBAR1MemoryInfo)(device, memory);
  if (result != NVML_SUCCESS || !call.is_the_programs() || mode() != Mode::active) return result;
  const int dev = region_device(device);
  if (dev == kNotInJob || !is_limited(static_cast<unsigned>(dev))) return result;
  const std::uint64_t limit = job_region().memory_limit(static_cast<unsigned>(dev));
  if (limit >= memory->bar1Total) return result;
  const double share = static_cast<double>(limit) / static_cast<double>(memory->bar1Total);
  memory->bar1Total = limit;
  memory->bar1Used =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(share * static_cast<double>(memory->bar1Used)), limit);
  memory->bar1Free = limit - memory->bar1Used;
  return result;
}

}  // extern "C"
