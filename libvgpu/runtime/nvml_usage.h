// What the node itself says this process holds on a device: the one way to learn what contexts and modules take.
#pragma once

#include <cstdint>

namespace vgpu::runtime {

enum class Measured : std::uint8_t {
  yes,
  absent,   // NVML does not list this process: it holds nothing, or too recently
  unknown,  // no NVML, one that cannot tell, or a PID namespace that hides who we are
};

// Opens NVML for us when first called; to be called only when the process has, or had, a context.
Measured measure_memory(unsigned dev, std::uint64_t *bytes);

}  // namespace vgpu::runtime
