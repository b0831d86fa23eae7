// The few calls of the CUDA driver with which a context is measured, declared here for the reason that nvml_calls.h has. A
// test compares this with cuda.h.
#pragma once

#include <cstddef>

namespace vgpu::probe::cuda {

using Result = int;
inline constexpr Result kSuccess = 0;

using Device = int;
using Context = struct ContextHandle *;

struct AllocationProperties {
  int type;
  int handle_types;
  int location_type;
  int location_id;
  void *platform;
  unsigned char flags[8];
};
inline constexpr int kPinned = 1;
inline constexpr int kOnDevice = 1;
inline constexpr int kMinimum = 0;

struct Calls {
  Result (*init)(unsigned flags);
  Result (*device_count)(int *);
  Result (*device_get)(Device *, int ordinal);
  Result (*total_memory)(std::size_t *, Device);
  Result (*retain_primary)(Context *, Device);
  Result (*set_current)(Context);
  Result (*synchronize)();
  Result (*error_name)(Result, const char **);

  // Null before CUDA 10.2.
  Result (*granularity)(std::size_t *, const AllocationProperties *, int option);
};

}  // namespace vgpu::probe::cuda
