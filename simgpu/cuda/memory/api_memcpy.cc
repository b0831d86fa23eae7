// Linear copies: every direction, the 32-bit, 64-bit and per-thread forms.
#include "simgpu/cuda/memory/array.h"
#include "simgpu/cuda/memory/transfer.h"

using namespace simgpu;

namespace {

uint64_t host(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

CopyJob to_device(CUdeviceptr to, const void *from, size_t n) {
  CopyJob job = linear_job(to, host(from), n);
  job.from.host = true;
  return job;
}
CopyJob to_host(void *to, CUdeviceptr from, size_t n) {
  CopyJob job = linear_job(host(to), from, n);
  job.to.host = true;
  return job;
}
// Unified addresses: either side may be anything.
CopyJob unified(CUdeviceptr to, CUdeviceptr from, size_t n) {
  CopyJob job = linear_job(to, from, n);
  job.to.host = job.from.host = true;
  return job;
}

CopySide array_side(CUarray handle, size_t offset) {
  CopySide side;
  side.array = valid_array(handle);
  side.x_bytes = offset;
  return side;
}

CUresult array_copy(CopyJob job, CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t n,
                    CUstream stream, bool per_thread, bool wait) {
  job.width_bytes = n;
  if (to != nullptr) job.to = array_side(to, to_offset);
  if (from != nullptr) job.from = array_side(from, from_offset);
  if ((to != nullptr && job.to.array == nullptr) || (from != nullptr && job.from.array == nullptr))
    return CUDA_ERROR_INVALID_HANDLE;
  return transfer(job, stream, per_thread, wait);
}

}  // namespace

#define THREE(name, v1_parameters, v2_parameters, job)                             \
  CUresult name v1_parameters { return transfer(job, nullptr, false, true); }      \
  CUresult name##_v2 v2_parameters { return transfer(job, nullptr, false, true); } \
  CUresult name##_v2_ptds v2_parameters { return transfer(job, nullptr, true, true); }
#define THREE_ASYNC(name, v1_parameters, v2_parameters, job)                  \
  CUresult name v1_parameters { return transfer(job, s, false, false); }      \
  CUresult name##_v2 v2_parameters { return transfer(job, s, false, false); } \
  CUresult name##_v2_ptsz v2_parameters { return transfer(job, s, true, false); }
#define ARRAY(name, v1_parameters, v2_parameters, job, to, to_at, from, from_at)                                  \
  CUresult name v1_parameters { return array_copy(job, to, to_at, from, from_at, n, nullptr, false, true); }      \
  CUresult name##_v2 v2_parameters { return array_copy(job, to, to_at, from, from_at, n, nullptr, false, true); } \
  CUresult name##_v2_ptds v2_parameters { return array_copy(job, to, to_at, from, from_at, n, nullptr, true, true); }
#define ARRAY_ASYNC(name, v1_parameters, v2_parameters, job, to, to_at, from, from_at)                       \
  CUresult name v1_parameters { return array_copy(job, to, to_at, from, from_at, n, s, false, false); }      \
  CUresult name##_v2 v2_parameters { return array_copy(job, to, to_at, from, from_at, n, s, false, false); } \
  CUresult name##_v2_ptsz v2_parameters { return array_copy(job, to, to_at, from, from_at, n, s, true, false); }

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return transfer(unified(to, from, n), nullptr, false, true);
}
CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return transfer(unified(to, from, n), nullptr, true, true);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
  return transfer(unified(to, from, n), s, false, false);
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
  return transfer(unified(to, from, n), s, true, false);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n) {
  return transfer(linear_job(to, from, n), nullptr, false, true);
}
CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n) {
  return transfer(linear_job(to, from, n), nullptr, true, true);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n, CUstream s) {
  return transfer(linear_job(to, from, n), s, false, false);
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n, CUstream s) {
  return transfer(linear_job(to, from, n), s, true, false);
}

THREE(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned int n), (CUdeviceptr to, const void *from, size_t n),
      to_device(to, from, n))
THREE(cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, unsigned int n), (void *to, CUdeviceptr from, size_t n),
      to_host(to, from, n))
THREE(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int n),
      (CUdeviceptr to, CUdeviceptr from, size_t n), linear_job(to, from, n))
THREE_ASYNC(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, unsigned int n, CUstream s),
            (CUdeviceptr to, const void *from, size_t n, CUstream s), to_device(to, from, n))
THREE_ASYNC(cuMemcpyDtoHAsync, (void *to, CUdeviceptr_v1 from, unsigned int n, CUstream s),
            (void *to, CUdeviceptr from, size_t n, CUstream s), to_host(to, from, n))
THREE_ASYNC(cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int n, CUstream s),
            (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s), linear_job(to, from, n))

ARRAY(cuMemcpyDtoA, (CUarray to, unsigned int at, CUdeviceptr_v1 from, unsigned int n),
      (CUarray to, size_t at, CUdeviceptr from, size_t n), linear_job(0, from, n), to, at, nullptr, 0)
ARRAY(cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned int at, unsigned int n),
      (CUdeviceptr to, CUarray from, size_t at, size_t n), linear_job(to, 0, n), nullptr, 0, from, at)
ARRAY(cuMemcpyHtoA, (CUarray to, unsigned int at, const void *from, unsigned int n),
      (CUarray to, size_t at, const void *from, size_t n), to_device(0, from, n), to, at, nullptr, 0)
ARRAY(cuMemcpyAtoH, (void *to, CUarray from, unsigned int at, unsigned int n),
      (void *to, CUarray from, size_t at, size_t n), to_host(to, 0, n), nullptr, 0, from, at)
ARRAY(cuMemcpyAtoA, (CUarray to, unsigned int to_at, CUarray from, unsigned int from_at, unsigned int n),
      (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t n), CopyJob(), to, to_at, from, from_at)
ARRAY_ASYNC(cuMemcpyHtoAAsync, (CUarray to, unsigned int at, const void *from, unsigned int n, CUstream s),
            (CUarray to, size_t at, const void *from, size_t n, CUstream s), to_device(0, from, n), to, at, nullptr, 0)
ARRAY_ASYNC(cuMemcpyAtoHAsync, (void *to, CUarray from, unsigned int at, unsigned int n, CUstream s),
            (void *to, CUarray from, size_t at, size_t n, CUstream s), to_host(to, 0, n), nullptr, 0, from, at)

}  // extern "C"
