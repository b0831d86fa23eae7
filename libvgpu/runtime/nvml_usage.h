// Asks NVML what this process holds on a device: the one way to learn what contexts and modules take.
#pragma once

#include <cstdint>

namespace vgpu::runtime {

enum class NvmlUsage : std::uint8_t {
  known,
  not_listed,  // NVML does not list this process: it holds nothing, or too recently
  not_told,    // it does, and says nothing of its memory: no figure, or 0
  unknown,     // no NVML, one that cannot tell, or a PID namespace that hides who we are
};

// Opens NVML for us when first called; to be called only when the process has, or had, a context. `held` is what the
// process is charged for, by which it may recognise itself.
NvmlUsage query_nvml_usage(unsigned dev, std::uint64_t held, std::uint64_t *bytes);

}  // namespace vgpu::runtime
