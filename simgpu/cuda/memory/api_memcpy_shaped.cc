// Copies of rectangles and boxes: the 2D and 3D descriptors of all generations.
#include "simgpu/cuda/memory/array.h"
#include "simgpu/cuda/memory/transfer.h"

namespace simgpu {
namespace {

// The four ways a descriptor names one side. Templates, because five descriptor types share the field names.
CopySide side(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, size_t x, size_t y, size_t z,
              size_t pitch, size_t height) {
  CopySide out;
  out.x_bytes = x;
  out.y = y;
  out.z = z;
  out.pitch = pitch;
  out.height = height;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      out.address = reinterpret_cast<uint64_t>(host);
      out.host = true;
      break;
    case CU_MEMORYTYPE_DEVICE:
      out.address = device;
      break;
    case CU_MEMORYTYPE_ARRAY:
      out.array = valid_array(array);
      break;
    case CU_MEMORYTYPE_UNIFIED:
      out.address = device;
      out.host = true;
      break;
  }
  return out;
}

template <typename Descriptor>
CopyJob job_2d(const Descriptor &c) {
  CopyJob job;
  job.from = side(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcXInBytes, c.srcY, 0, c.srcPitch, 0);
  job.to = side(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstXInBytes, c.dstY, 0, c.dstPitch, 0);
  job.width_bytes = c.WidthInBytes;
  job.height = c.Height;
  if (job.from.pitch == 0) job.from.pitch = job.width_bytes;
  if (job.to.pitch == 0) job.to.pitch = job.width_bytes;
  return job;
}

template <typename Descriptor>
CopyJob job_3d(const Descriptor &c) {
  CopyJob job;
  job.from =
      side(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch, c.srcHeight);
  job.to =
      side(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstXInBytes, c.dstY, c.dstZ, c.dstPitch, c.dstHeight);
  job.width_bytes = c.WidthInBytes;
  job.height = c.Height;
  job.depth = c.Depth;
  for (CopySide *s : {&job.from, &job.to}) {
    if (s->pitch == 0) s->pitch = job.width_bytes;
    if (s->height == 0) s->height = job.height;
  }
  return job;
}

bool sound(const CopyJob &job) {
  for (const CopySide *s : {&job.from, &job.to}) {
    if (s->array != nullptr) continue;
    if (s->address == 0 || (job.height > 1 && s->pitch < job.width_bytes)) return false;
  }
  return true;
}

template <typename Descriptor, typename Make>
CUresult shaped(const Descriptor *copy, Make make, CUstream stream, bool per_thread, bool wait) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyJob job = make(*copy);
  return sound(job) ? transfer(job, stream, per_thread, wait) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CopyJob job_from_3d(const CUDA_MEMCPY3D &copy) { return job_3d(copy); }

}  // namespace simgpu

using namespace simgpu;

#define SHAPED(name, type, make) \
  CUresult name(const type *copy) { return shaped(copy, make<type>, nullptr, false, true); }
#define SHAPED_THREAD(name, type, make) \
  CUresult name(const type *copy) { return shaped(copy, make<type>, nullptr, true, true); }
#define SHAPED_ASYNC(name, type, make) \
  CUresult name(const type *copy, CUstream s) { return shaped(copy, make<type>, s, false, false); }
#define SHAPED_ASYNC_THREAD(name, type, make) \
  CUresult name(const type *copy, CUstream s) { return shaped(copy, make<type>, s, true, false); }

extern "C" {
SHAPED(cuMemcpy2D, CUDA_MEMCPY2D_v1, job_2d)
SHAPED(cuMemcpy2D_v2, CUDA_MEMCPY2D_v2, job_2d)
SHAPED_THREAD(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D_v2, job_2d)
SHAPED(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, job_2d)
SHAPED(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D_v2, job_2d)
SHAPED_THREAD(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D_v2, job_2d)
SHAPED_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, job_2d)
SHAPED_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D_v2, job_2d)
SHAPED_ASYNC_THREAD(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D_v2, job_2d)
SHAPED(cuMemcpy3D, CUDA_MEMCPY3D_v1, job_3d)
SHAPED(cuMemcpy3D_v2, CUDA_MEMCPY3D_v2, job_3d)
SHAPED_THREAD(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D_v2, job_3d)
SHAPED_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, job_3d)
SHAPED_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D_v2, job_3d)
SHAPED_ASYNC_THREAD(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D_v2, job_3d)
SHAPED(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, job_3d)
SHAPED_THREAD(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, job_3d)
SHAPED_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, job_3d)
SHAPED_ASYNC_THREAD(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, job_3d)
}
