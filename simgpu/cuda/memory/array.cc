#include "simgpu/cuda/memory/array.h"

#include <algorithm>

namespace simgpu {

Array *valid_array(CUarray handle) {
  auto *array = reinterpret_cast<Array *>(handle);
  return array != nullptr && array->magic == kArrayMagic ? array : nullptr;
}

namespace {

size_t format_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

// Lays one array out; false when the description makes no sense.
bool lay_out(const CUDA_ARRAY3D_DESCRIPTOR &description, Array *array) {
  size_t element = format_bytes(description.Format) * description.NumChannels;
  if (element == 0 || description.Width == 0) return false;
  if (description.NumChannels != 1 && description.NumChannels != 2 && description.NumChannels != 4) return false;
  if (description.Height == 0 && description.Depth != 0 && (description.Flags & CUDA_ARRAY3D_LAYERED) == 0)
    return false;
  if (description.Width > (1u << 20) || description.Height > (1u << 18) || description.Depth > (1u << 16)) return false;
  array->description = description;
  array->element_bytes = element;
  array->row_bytes = element * description.Width;
  array->pitch = round_up(array->row_bytes, 512);
  array->rows = std::max<size_t>(description.Height, 1);
  array->slices = std::max<size_t>(description.Depth, 1);
  return true;
}

bool has_no_memory(const CUDA_ARRAY3D_DESCRIPTOR &description) {
  return (description.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}

CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR &description) {
  SIMGPU_CONTEXT(driver, context);
  auto *array = new Array;
  array->context = context;
  if (!lay_out(description, array)) {
    delete array;
    return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock(driver->mutex);
  CUresult result = CUDA_SUCCESS;
  if (!has_no_memory(description))
    result = allocate_area(driver, context, array->bytes(), AreaKind::kArray, BlockUse::kArray, false, &array->area);
  if (result != CUDA_SUCCESS) {
    delete array;
    return result;
  }
  driver->arrays.insert(array);
  *out = reinterpret_cast<CUarray>(array);
  return CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR widen(const CUDA_ARRAY_DESCRIPTOR &flat) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  description.Width = flat.Width;
  description.Height = flat.Height;
  description.Format = flat.Format;
  description.NumChannels = flat.NumChannels;
  return description;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *descriptor) {
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(handle, widen(*descriptor));
}

CUresult cuArrayCreate(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor) {
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY_DESCRIPTOR flat{descriptor->Width, descriptor->Height, descriptor->Format, descriptor->NumChannels};
  return create(handle, widen(flat));
}

CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(handle, *descriptor);
}

CUresult cuArray3DCreate(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor) {
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR description{descriptor->Width,  descriptor->Height,      descriptor->Depth,
                                      descriptor->Format, descriptor->NumChannels, descriptor->Flags};
  return create(handle, description);
}

CUresult cuArrayDestroy(CUarray handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Array *array = valid_array(handle);
  if (array == nullptr || array->level) return CUDA_ERROR_INVALID_HANDLE;
  drop_pieces(driver, array->pieces);
  if (array->context->alive && array->area != nullptr) free_area(driver, array->area);
  driver->arrays.erase(array);
  array->magic = 0;
  delete array;
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray handle) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  Array *array = valid_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = array->description;
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray handle) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  Array *array = valid_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = {array->description.Width, array->description.Height, array->description.Format,
                 array->description.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray handle, CUdevice device) {
  SIMGPU_DRIVER(driver);
  Array *array = valid_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (requirements == nullptr || driver->device(device) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *requirements = {};
  requirements->size = round_up(array->bytes(), kBlockBytes);
  requirements->alignment = kBlockBytes;
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned int levels) {
  SIMGPU_CONTEXT(driver, context);
  if (handle == nullptr || descriptor == nullptr || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  auto *mipmap = new Mipmap;
  uint64_t total = 0;
  CUDA_ARRAY3D_DESCRIPTOR description = *descriptor;
  bool sound = true;
  for (unsigned i = 0; i < levels && sound; i++) {
    auto *level = new Array;
    sound = lay_out(description, level);
    level->level = true;
    level->context = context;
    level->offset = total;
    total += level->bytes();
    mipmap->levels.push_back(level);
    auto halve = [](size_t n) { return n > 1 ? n / 2 : n; };
    if (description.Width == 1 && description.Height <= 1 && description.Depth <= 1) break;  // nothing left to halve
    description.Width = halve(description.Width);
    description.Height = halve(description.Height);
    if ((description.Flags & CUDA_ARRAY3D_LAYERED) == 0) description.Depth = halve(description.Depth);
  }
  CUresult result = sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  if (sound && !has_no_memory(*descriptor))
    result = allocate_area(driver, context, total, AreaKind::kArray, BlockUse::kArray, false, &mipmap->area);
  if (result != CUDA_SUCCESS) {
    for (Array *level : mipmap->levels) delete level;
    delete mipmap;
    return result;
  }
  for (Array *level : mipmap->levels) level->area = mipmap->area;
  driver->arrays.insert(mipmap);
  *handle = reinterpret_cast<CUmipmappedArray>(mipmap);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray handle, unsigned int index) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  auto *mipmap = reinterpret_cast<Mipmap *>(handle);
  if (mipmap == nullptr || mipmap->magic != kMipmapMagic) return CUDA_ERROR_INVALID_HANDLE;
  if (level == nullptr || index >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *level = reinterpret_cast<CUarray>(mipmap->levels[index]);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  auto *mipmap = reinterpret_cast<Mipmap *>(handle);
  if (mipmap == nullptr || mipmap->magic != kMipmapMagic) return CUDA_ERROR_INVALID_HANDLE;
  drop_pieces(driver, mipmap->pieces);
  if (mipmap->levels[0]->context->alive && mipmap->area != nullptr) free_area(driver, mipmap->area);
  for (Array *level : mipmap->levels) {
    level->magic = 0;
    delete level;
  }
  driver->arrays.erase(mipmap);
  mipmap->magic = 0;
  delete mipmap;
  return CUDA_SUCCESS;
}

}  // extern "C"
