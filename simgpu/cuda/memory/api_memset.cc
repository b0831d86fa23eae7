// Every cuMemset* entry point: three element sizes, one or two dimensions, and the ways to name a stream.
#include "simgpu/cuda/memory/transfer.h"

using namespace simgpu;

namespace {
FillJob flat(CUdeviceptr to, uint32_t value, unsigned element, size_t count) {
  FillJob job;
  job.address = to;
  job.value = value;
  job.element = element;
  job.width = count;
  return job;
}
FillJob rows(CUdeviceptr to, size_t pitch, uint32_t value, unsigned element, size_t width, size_t height) {
  FillJob job = flat(to, value, element, width);
  job.pitch = pitch;
  job.height = height;
  return job;
}
}  // namespace

#define FLAT(bits, type)                                                               \
  CUresult cuMemsetD##bits(CUdeviceptr_v1 to, type v, unsigned int n) {                \
    return fill(flat(to, v, bits / 8, n), nullptr, false, true);                       \
  }                                                                                    \
  CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type v, size_t n) {                    \
    return fill(flat(to, v, bits / 8, n), nullptr, false, true);                       \
  }                                                                                    \
  CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type v, size_t n) {               \
    return fill(flat(to, v, bits / 8, n), nullptr, true, true);                        \
  }                                                                                    \
  CUresult cuMemsetD##bits##Async(CUdeviceptr to, type v, size_t n, CUstream s) {      \
    return fill(flat(to, v, bits / 8, n), s, false, false);                            \
  }                                                                                    \
  CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type v, size_t n, CUstream s) { \
    return fill(flat(to, v, bits / 8, n), s, true, false);                             \
  }

#define ROWS(bits, type)                                                                                         \
  CUresult cuMemsetD2D##bits(CUdeviceptr_v1 to, unsigned int pitch, type v, unsigned int w, unsigned int h) {    \
    return fill(rows(to, pitch, v, bits / 8, w, h), nullptr, false, true);                                       \
  }                                                                                                              \
  CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type v, size_t w, size_t h) {                    \
    return fill(rows(to, pitch, v, bits / 8, w, h), nullptr, false, true);                                       \
  }                                                                                                              \
  CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type v, size_t w, size_t h) {               \
    return fill(rows(to, pitch, v, bits / 8, w, h), nullptr, true, true);                                        \
  }                                                                                                              \
  CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type v, size_t w, size_t h, CUstream s) {      \
    return fill(rows(to, pitch, v, bits / 8, w, h), s, false, false);                                            \
  }                                                                                                              \
  CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type v, size_t w, size_t h, CUstream s) { \
    return fill(rows(to, pitch, v, bits / 8, w, h), s, true, false);                                             \
  }

extern "C" {
FLAT(8, unsigned char)
FLAT(16, unsigned short)
FLAT(32, unsigned int)
ROWS(8, unsigned char)
ROWS(16, unsigned short)
ROWS(32, unsigned int)
}
