// Arrays without memory of their own: physical memory is put behind them, piece by piece, and stays until it is taken away
// or the array goes. Which texel lies where in it is not kept, so such arrays can be made, mapped and destroyed, not read.
#include "simgpu/cuda/memory/array.h"
#include "simgpu/cuda/memory/vmm.h"
#include "simgpu/cuda/stream/stream.h"

namespace simgpu {

void drop_pieces(Driver *driver, ArrayPieces &pieces) {
  for (auto &[place, memory] : pieces) {
    memory->mappings--;
    settle_handle(driver, memory);
  }
  pieces.clear();
}

void drop_pieces_of(Driver *driver, const Context *context) {
  for (void *entry : driver->arrays) {
    auto *array = static_cast<Array *>(entry);
    auto *mipmap = static_cast<Mipmap *>(entry);
    if (array->magic == kArrayMagic && array->context == context) drop_pieces(driver, array->pieces);
    if (mipmap->magic == kMipmapMagic && mipmap->levels[0]->context == context) drop_pieces(driver, mipmap->pieces);
  }
}

namespace {

ArrayPieces *pieces_of(Driver *driver, const CUarrayMapInfo &operation) {
  if (operation.resourceType == CU_RESOURCE_TYPE_ARRAY) {
    Array *array = valid_array(operation.resource.array);
    return array != nullptr && array->area == nullptr && !array->level ? &array->pieces : nullptr;
  }
  auto *mipmap = reinterpret_cast<Mipmap *>(operation.resource.mipmap);
  if (operation.resourceType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY || driver->arrays.count(mipmap) == 0) return nullptr;
  return mipmap->magic == kMipmapMagic && mipmap->area == nullptr ? &mipmap->pieces : nullptr;
}

ArrayPlace place_of(const CUarrayMapInfo &operation) {
  if (operation.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
    return {~0u, operation.subresource.miptail.layer, operation.subresource.miptail.offset, 0, 0};
  const auto &level = operation.subresource.sparseLevel;
  return {level.level, level.layer, level.offsetX, level.offsetY, level.offsetZ};
}

// Expects the lock.
CUresult check(Driver *driver, const CUarrayMapInfo &operation) {
  if (pieces_of(driver, operation) == nullptr || operation.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (operation.memOperationType != CU_MEM_OPERATION_TYPE_MAP) return CUDA_SUCCESS;
  PhysicalHandle *memory = valid_handle(operation.memHandle.memHandle);
  bool usable = operation.memHandleType == CU_MEM_HANDLE_TYPE_GENERIC && memory != nullptr &&
                memory->device != nullptr && operation.offset < memory->bytes;
  return usable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Expects the lock.
void apply(Driver *driver, const CUarrayMapInfo &operation) {
  ArrayPieces *pieces = pieces_of(driver, operation);
  if (pieces == nullptr) return;  // destroyed before its stream came here
  ArrayPlace place = place_of(operation);
  PhysicalHandle *before = nullptr;
  if (auto old = pieces->find(place); old != pieces->end()) {
    before = old->second;
    pieces->erase(old);
  }
  if (operation.memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
    if (PhysicalHandle *memory = valid_handle(operation.memHandle.memHandle)) {
      memory->mappings++;
      pieces->emplace(place, memory);
    }
  }
  if (before == nullptr) return;
  before->mappings--;
  settle_handle(driver, before);
}

CUresult map(CUarrayMapInfo *operations, unsigned count, CUstream handle, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  {
    DriverLock lock(driver->mutex);
    for (unsigned i = 0; i < count; i++)
      if (CUresult result = check(driver, operations[i])) return result;
  }
  std::vector<CUarrayMapInfo> list(operations, operations + count);
  submit(stream, [driver, list = std::move(list)] {
    DriverLock lock(driver->mutex);
    for (const CUarrayMapInfo &operation : list) apply(driver, operation);
  });
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

extern "C" {

CUresult cuMemMapArrayAsync(CUarrayMapInfo *operations, unsigned int count, CUstream stream) {
  return simgpu::map(operations, count, stream, false);
}
CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *operations, unsigned int count, CUstream stream) {
  return simgpu::map(operations, count, stream, true);
}

}  // extern "C"
