// Attributes of streams. They are kept and returned; only the priority means something, and that not much.
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

CUstreamAttrValue default_attribute(const Stream &stream, CUstreamAttrID id) {
  CUstreamAttrValue value{};
  if (id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) value.syncPolicy = CU_SYNC_POLICY_AUTO;
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) value.priority = stream.priority;
  if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value.memSyncDomainMap = {0, 1};
  return value;
}

bool is_attribute_of_streams(CUstreamAttrID id) {
  return id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         id == CU_LAUNCH_ATTRIBUTE_PRIORITY || id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

CUresult get_attribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *value, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr || !is_attribute_of_streams(id)) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  auto found = stream->attributes.find(id);
  *value = found != stream->attributes.end() ? found->second : default_attribute(*stream, id);
  return CUDA_SUCCESS;
}

CUresult set_attribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr || !is_attribute_of_streams(id)) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  // The priority is also what cuStreamGetPriority returns.
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
    stream->priority = std::max(-5, std::min(0, value->priority));
  else
    stream->attributes[id] = *value;
  return CUDA_SUCCESS;
}

CUresult copy_attributes(CUstream to_handle, CUstream from_handle, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  Stream *to = find_stream(driver, context, to_handle, per_thread);
  Stream *from = find_stream(driver, context, from_handle, per_thread);
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  DriverLock lock(driver->mutex);
  if (to->context != from->context) return CUDA_ERROR_INVALID_VALUE;
  to->attributes = from->attributes;
  to->priority = from->priority;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value) {
  return get_attribute(stream, id, value, false);
}
CUresult cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value) {
  return get_attribute(stream, id, value, true);
}
CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value) {
  return set_attribute(stream, id, value, false);
}
CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value) {
  return set_attribute(stream, id, value, true);
}
CUresult cuStreamCopyAttributes(CUstream to, CUstream from) { return copy_attributes(to, from, false); }
CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) { return copy_attributes(to, from, true); }

}  // extern "C"
