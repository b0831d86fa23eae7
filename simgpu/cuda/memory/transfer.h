// Copies and fills as jobs: every copy call is turned into one description, which is checked at once and then run in its
// stream or recorded in a graph.
#pragma once

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/stream/stream.h"

namespace simgpu {

struct Array;

struct CopySide {
  Array *array = nullptr;
  uint64_t address = 0;  // host or device; unused for arrays
  bool host = false;     // the client said it is host memory
  size_t x_bytes = 0, y = 0, z = 0;
  size_t pitch = 0, height = 0;
};

struct CopyJob {
  CopySide from, to;
  size_t width_bytes = 0, height = 1, depth = 1;
};

struct FillJob {
  CUdeviceptr address = 0;
  uint32_t value = 0;
  unsigned element = 1;  // bytes
  size_t width = 0, height = 1, pitch = 0;
};

CopyJob linear_job(uint64_t to, uint64_t from, size_t bytes);
CopyJob job_from_3d(const CUDA_MEMCPY3D &copy);
CUresult check_job(Driver *driver, const CopyJob &job);
CUresult run_job(Driver *driver, Device *accessor, const CopyJob &job);
CUresult check_fill(Driver *driver, const FillJob &job);
CUresult run_fill(Driver *driver, Device *accessor, const FillJob &job);

// What the entry points do with a job.
CUresult transfer(const CopyJob &job, CUstream stream, bool per_thread, bool wait);
CUresult fill(const FillJob &job, CUstream stream, bool per_thread, bool wait);

}  // namespace simgpu
