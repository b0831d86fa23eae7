// Telling the program's calls of NVML from ours and from NVML's own.
//
// NVML reaches some of its own exports through the dynamic linker, and so comes back to our hooks: those calls, and all
// that we make ourselves, must see what NVML really says.
#pragma once

namespace vgpu::driver {

[[gnu::tls_model("initial-exec")]] extern thread_local constinit unsigned nvml_depth;

class NvmlCall {
 public:
  NvmlCall() { ++nvml_depth; }
  ~NvmlCall() { --nvml_depth; }
  NvmlCall(const NvmlCall &) = delete;
  NvmlCall &operator=(const NvmlCall &) = delete;

  // False inside another call.
  bool is_the_programs() const { return nvml_depth == 1; }
};

}  // namespace vgpu::driver
