#include "simgpu/cuda/memory/transfer.h"

#include "simgpu/cuda/graph/capture.h"
#include "simgpu/cuda/memory/array.h"
#include "simgpu/cuda/memory/copy.h"

namespace simgpu {
namespace {

// The address of a row of one side.
uint64_t row_address(const CopySide &side, size_t y, size_t z) {
  if (side.array != nullptr) {
    const Array &array = *side.array;
    return array.area->base + array.offset + ((side.z + z) * array.rows + side.y + y) * array.pitch + side.x_bytes;
  }
  return side.address + ((side.z + z) * side.height + side.y + y) * side.pitch + side.x_bytes;
}

CUresult check_side(Driver *driver, const CopySide &side, const CopyJob &job) {
  if (side.array != nullptr) {
    const Array &array = *side.array;
    if (array.area == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    bool fits = side.x_bytes + job.width_bytes <= array.row_bytes && side.y + job.height <= array.rows &&
                side.z + job.depth <= array.slices;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (side.address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (side.host && !is_device_address(driver, side.address)) return CUDA_SUCCESS;
  uint64_t first = row_address(side, 0, 0);
  uint64_t last = row_address(side, job.height - 1, job.depth - 1) + job.width_bytes;
  if (!is_device_address(driver, first)) {
    // Not ours: pinned host memory named as a device pointer, or, in the unified calls, any memory of the process.
    return side.host || check_device_range(driver, first, last - first) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return check_device_range(driver, first, last - first) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CopyJob linear_job(uint64_t to, uint64_t from, size_t bytes) {
  CopyJob job;
  job.to.address = to;
  job.from.address = from;
  job.width_bytes = bytes;
  return job;
}

CUresult check_job(Driver *driver, const CopyJob &job) {
  if (job.width_bytes == 0 || job.height == 0 || job.depth == 0) return CUDA_SUCCESS;
  if (CUresult result = check_side(driver, job.from, job)) return result;
  return check_side(driver, job.to, job);
}

CUresult run_job(Driver *driver, Device *accessor, const CopyJob &job) {
  if (job.width_bytes == 0) return CUDA_SUCCESS;
  for (size_t z = 0; z < job.depth; z++)
    for (size_t y = 0; y < job.height; y++) {
      CUresult result =
          copy_bytes(driver, accessor, row_address(job.to, y, z), row_address(job.from, y, z), job.width_bytes);
      if (result != CUDA_SUCCESS) return result;
    }
  return CUDA_SUCCESS;
}

CUresult check_fill(Driver *driver, const FillJob &job) {
  if (job.width == 0 || job.height == 0) return CUDA_SUCCESS;
  if (job.address % job.element != 0) return CUDA_ERROR_INVALID_VALUE;
  size_t row = job.width * job.element;
  if (job.height > 1 && job.pitch < row) return CUDA_ERROR_INVALID_VALUE;
  return check_device_range(driver, job.address, (job.height - 1) * job.pitch + row) ? CUDA_SUCCESS
                                                                                     : CUDA_ERROR_INVALID_VALUE;
}

CUresult run_fill(Driver *driver, Device *accessor, const FillJob &job) {
  for (size_t y = 0; y < job.height; y++) {
    CUresult result = fill_bytes(driver, accessor, job.address + y * job.pitch, job.value, job.element, job.width);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

namespace {

bool is_pageable(Driver *driver, const CopySide &side) {
  if (side.array != nullptr || driver->addresses.find(side.address) != nullptr) return false;
  auto after = driver->host_ranges.upper_bound(side.address);
  if (after == driver->host_ranges.begin()) return true;
  auto range = std::prev(after);
  return side.address - range->first >= range->second.bytes;
}

// A driver does not leave a copy from or to memory that is not pinned behind kernels: it waits for them itself. Behind a
// host function it would wait for its own caller, perhaps.
bool lingers_in_pageable_memory(Driver *driver, Stream *stream, const CopyJob &job) {
  if (is_idle(stream) || stream->holding.load(std::memory_order_acquire) != 0) return false;
  DriverLock lock(driver->mutex);
  return is_pageable(driver, job.from) || is_pageable(driver, job.to);
}

}  // namespace

CUresult transfer(const CopyJob &job, CUstream handle, bool per_thread, bool wait) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  // What a capture records may name memory that only the graph's launch will bring.
  if (stream->capture != nullptr) return wait ? forbid_in_capture(driver, stream) : capture_copy(driver, stream, job);
  if (CUresult result = check_job(driver, job)) return result;
  Device *device = context->device;
  submit(stream, [driver, device, job] { run_job(driver, device, job); });
  if (wait || lingers_in_pageable_memory(driver, stream, job)) drain(stream);
  return CUDA_SUCCESS;
}

CUresult fill(const FillJob &job, CUstream handle, bool per_thread, bool wait) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = forbid_implicit_order(driver, stream)) return result;
  if (stream->capture != nullptr) return wait ? forbid_in_capture(driver, stream) : capture_fill(driver, stream, job);
  if (CUresult result = check_fill(driver, job)) return result;
  Device *device = context->device;
  submit(stream, [driver, device, job] { run_fill(driver, device, job); });
  if (wait) drain(stream);
  return CUDA_SUCCESS;
}

}  // namespace simgpu
