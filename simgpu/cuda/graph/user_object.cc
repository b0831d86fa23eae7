// User objects: a pointer of the client's with a count of who uses it; the last one to let go runs its destructor. Graphs
// use them too, and so do instances of those graphs.
#include "simgpu/cuda/graph/user_object.h"

#include <thread>

namespace simgpu {
namespace {

UserObject *valid_object(CUuserObject handle) {
  auto *object = reinterpret_cast<UserObject *>(handle);
  return object != nullptr && object->magic == kUserObjectMagic ? object : nullptr;
}

}  // namespace

void release_user_object(UserObject *object, uint64_t count) {
  object->references -= count;
  if (object->references != 0) return;
  object->magic = 0;
  // Elsewhere, because destructors may not be waited for in a call, and may not be called with our lock held.
  std::thread([destroy = object->destroy, pointer = object->pointer] { destroy(pointer); }).detach();
  delete object;
}

}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuUserObjectCreate(CUuserObject *out, void *pointer, CUhostFn destroy, unsigned int references,
                            unsigned int flags) {
  SIMGPU_DRIVER(driver);
  (void)driver;
  if (out == nullptr || destroy == nullptr || references == 0 || references > INT32_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  auto *object = new UserObject;
  object->pointer = pointer;
  object->destroy = destroy;
  object->references = references;
  *out = reinterpret_cast<CUuserObject>(object);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  UserObject *object = valid_object(handle);
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  UserObject *object = valid_object(handle);
  if (object == nullptr || count == 0 || count > object->references) return CUDA_ERROR_INVALID_VALUE;
  release_user_object(object, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count, unsigned int flags) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  UserObject *object = valid_object(object_handle);
  if (graph == nullptr || object == nullptr || count == 0 || flags > CU_GRAPH_USER_OBJECT_MOVE)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_GRAPH_USER_OBJECT_MOVE) {
    if (count > object->references) return CUDA_ERROR_INVALID_VALUE;
  } else {
    object->references += count;
  }
  graph->objects[object] += count;
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count) {
  SIMGPU_DRIVER(driver);
  DriverLock lock(driver->mutex);
  Graph *graph = valid_graph(handle);
  UserObject *object = valid_object(object_handle);
  if (graph == nullptr || object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto held = graph->objects.find(object);
  if (held == graph->objects.end() || count > held->second) return CUDA_ERROR_INVALID_VALUE;
  held->second -= count;
  if (held->second == 0) graph->objects.erase(held);
  release_user_object(object, count);
  return CUDA_SUCCESS;
}

}  // extern "C"
