// Legacy inter-process handles. A handle names the block-sized area, so that pieces of a slab can be shared too, and says
// where in it the allocation begins.
#include <unistd.h>

#include <cstring>

#include "simgpu/cuda/memory/share.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

struct HandleData {
  uint64_t magic;
  uint64_t share_id;
  uint64_t offset;
  uint64_t bytes;
  int32_t owner_slot;
  int32_t unused;
};
static_assert(sizeof(HandleData) <= sizeof(CUipcMemHandle));
constexpr uint64_t kMemMagic = 0x434950494d454d31;
constexpr uint64_t kEventHandleMagic = 0x4349504945565431;

CUresult open_memory(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
  SIMGPU_CONTEXT(driver, context);
  if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  HandleData data;
  memcpy(&data, &handle, sizeof data);
  if (data.magic != kMemMagic) return CUDA_ERROR_INVALID_HANDLE;
  // A process cannot open what it exported itself.
  if (data.owner_slot == static_cast<int32_t>(driver->link.slot())) return CUDA_ERROR_INVALID_CONTEXT;
  DriverLock lock(driver->mutex);
  Area *area;
  CUresult result = open_imported_area(driver, data.share_id, &area);
  if (result != CUDA_SUCCESS) return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_MAP_FAILED : result;
  if (area->context == nullptr) link_area(context, area);  // closed with the context that opened it
  *out = area->base + data.offset;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr dptr) {
  SIMGPU_CONTEXT(driver, context);
  (void)context;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  Allocation allocation;
  if (!driver->addresses.find_allocation(dptr, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  AreaKind kind = allocation.area->kind;
  if (kind != AreaKind::kLinear && kind != AreaKind::kSlab) return CUDA_ERROR_INVALID_VALUE;
  uint64_t id = share_area(driver, allocation.area);
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  HandleData data{kMemMagic,
                  id,
                  allocation.base - allocation.area->base,
                  allocation.bytes,
                  static_cast<int32_t>(driver->link.slot()),
                  0};
  memset(out, 0, sizeof *out);
  memcpy(out, &data, sizeof data);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags) {
  return open_memory(out, handle, flags);
}
CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags) {
  return open_memory(out, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  SIMGPU_CONTEXT(driver, context);
  drain_context(driver, context);
  DriverLock lock(driver->mutex);
  Area *area = driver->addresses.find(dptr);
  if (area == nullptr || area->kind != AreaKind::kImported) return CUDA_ERROR_INVALID_VALUE;
  return close_imported_area(driver, area);
}

// An event of another process: since work ends at once, what it names has always happened.
CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent handle) {
  SIMGPU_DRIVER(driver);
  Event *event = valid_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || (event->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_VALUE;
  HandleData data{kEventHandleMagic, 0, 0, 0, static_cast<int32_t>(driver->link.slot()), 0};
  memset(out, 0, sizeof *out);
  memcpy(out, &data, sizeof data);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle) {
  SIMGPU_CONTEXT(driver, context);
  HandleData data;
  memcpy(&data, &handle, sizeof data);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (data.magic != kEventHandleMagic) return CUDA_ERROR_INVALID_HANDLE;
  auto *event = new Event;
  event->context = context;
  event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  event->imported = true;
  DriverLock lock(driver->mutex);
  context->events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

}  // extern "C"
