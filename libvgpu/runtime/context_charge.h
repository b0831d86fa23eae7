// What a context takes is charged before it is made: by what the site said or somebody measured, else by a guess. NVML
// corrects it, sooner or later.
//
// A guess refuses nobody by itself. Where it does not fit, one rank of the job at a time makes its context with all that is
// left, and waits until NVML shows what it took: 500 ms at most, as do those who wait for their turn.
#pragma once

#include <optional>

#include "untracked_memory.h"

namespace vgpu::runtime {

// Whether a call makes a context, or something smaller beside one.
enum class Makes : std::uint8_t { context, less };

class ContextCharge : private UntrackedCharge {
 public:
  ContextCharge(unsigned dev, Makes makes);
  ~ContextCharge();

  using UntrackedCharge::cancel;
  using UntrackedCharge::granted;
  // As UntrackedCharge::settle(). `made` is what is charged, null if it was not the only thing made.
  bool settle(CUcontext made);

 private:
  bool reserve(std::uint64_t bytes);
  bool reserve_what_is_left();

  bool probing_ = false;
  std::uint64_t expected_ = 0;
};

}  // namespace vgpu::runtime
