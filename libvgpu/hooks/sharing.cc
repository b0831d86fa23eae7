// Memory that processes share by IPC handles: charged once, to the process that made it, for as long as anybody holds it.
#include "runtime/charge.h"
#include "runtime/imports.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

template <typename Call>
CUresult open_handle(CUdeviceptr *pointer, Call call) {
  Place place;
  if (mode() != Mode::active || pointer == nullptr || !current_place(&place) || place.dev == kNotInJob) return call();
  Import import(static_cast<unsigned>(place.dev));
  const CUresult result = call();
  if (result != CUDA_SUCCESS) return result;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (REAL(cuMemGetAddressRange_v2)(&base, &bytes, *pointer) == CUDA_SUCCESS) import.finish(*pointer, bytes);
  return result;
}

}  // namespace

extern "C" {

// From here on a free does not say that the memory is gone: others may hold it.
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
  const CUresult result = REAL(cuIpcGetMemHandle)(handle, pointer);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (result != CUDA_SUCCESS || mode() != Mode::active ||
      REAL(cuMemGetAddressRange_v2)(&base, &bytes, pointer) != CUDA_SUCCESS) {
    return result;
  }
  Allocation allocation;
  if (share_pointer(base, &allocation)) exported(allocation.dev, bytes_of(allocation.units));
  return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(pointer, [&] { return REAL(cuIpcOpenMemHandle)(pointer, handle, flags); });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(pointer, [&] { return REAL(cuIpcOpenMemHandle_v2)(pointer, handle, flags); });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  const CUresult result = REAL(cuIpcCloseMemHandle)(pointer);
  if (result != CUDA_SUCCESS || mode() != Mode::active) return result;
  import_closed(pointer);
  note_untracked_growth();  // whose maker is gone may have been charged here
  return result;
}

}  // extern "C"
