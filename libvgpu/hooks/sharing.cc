// Memory that processes share by IPC handles, and pointers of pools: charged once, to the process that made it, for as long as
// anybody holds it. Physical memory is in vmm.cc.
#include "runtime/charge.h"
#include "runtime/imports.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

// A call that puts the address of another process's memory into `pointer`.
template <typename Call>
CUresult open_handle(CUdeviceptr *pointer, Call call) {
  Place place;
  if (mode() != Mode::active || pointer == nullptr || !current_place(&place) || place.dev == kNotInJob) return call();
  Import import(place.dev);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) return result;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (REAL(cuMemGetAddressRange_v2)(&base, &bytes, *pointer) == CUDA_SUCCESS) {
    import.finish(static_cast<unsigned>(place.dev), *pointer, bytes);
  }
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
  close_import(pointer);
  return result;
}

// All of the pool, of which nobody can say what an importer will be counted for.
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer) {
  const CUresult result = REAL(cuMemPoolExportPointer)(data, pointer);
  CUmemoryPool pool = nullptr;
  if (result == CUDA_SUCCESS && mode() == Mode::active &&
      REAL(cuPointerGetAttribute)(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer) == CUDA_SUCCESS) {
    pool_exported(pool);
  }
  return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
  return open_handle(pointer, [&] { return REAL(cuMemPoolImportPointer)(pointer, pool, data); });
}

}  // extern "C"
