// Asks NVML what this process holds on a device: the one way to learn what contexts and modules take.
#pragma once

#include <cstdint>

namespace vgpu::runtime {

enum class NvmlUsage : std::uint8_t {
  known,
  not_listed,  // NVML does not list this process: it holds nothing, or too recently
  unknown,     // no NVML, one that cannot tell, or a PID namespace that hides who we are
};

// Opens NVML for us when first called; to be called only when the process has, or had, a context.
NvmlUsage query_nvml_usage(unsigned dev, std::uint64_t *bytes);

}  // namespace vgpu::runtime
