// Texture and surface objects: descriptions that are kept and given back; nothing ever samples them.
#include "simgpu/cuda/core.h"

namespace {

struct Texture {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
};

std::mutex g_mutex;
uint64_t g_next = 1;

// Leaked: clients call the driver while they exit.
std::map<uint64_t, Texture> &objects() {
  static auto *all = new std::map<uint64_t, Texture>;
  return *all;
}

template <typename T>
CUresult read(uint64_t object, T Texture::*field, T *out) {
  std::lock_guard<std::mutex> guard(g_mutex);
  auto it = objects().find(object);
  if (it == objects().end() || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = it->second.*field;
  return CUDA_SUCCESS;
}

CUresult destroy(uint64_t object) {
  std::lock_guard<std::mutex> guard(g_mutex);
  return objects().erase(object) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

CUresult cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
                           const CUDA_RESOURCE_VIEW_DESC *view) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  (void)context;
  if (out == nullptr || resource == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> guard(g_mutex);
  Texture &object = objects()[g_next];
  object.resource = *resource;
  object.texture = *texture;
  if (view != nullptr) object.view = *view;
  *out = g_next++;
  return CUDA_SUCCESS;
}
CUresult cuTexObjectDestroy(CUtexObject object) { return destroy(object); }
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUtexObject o) { return read(o, &Texture::resource, out); }
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *out, CUtexObject o) { return read(o, &Texture::texture, out); }
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *out, CUtexObject o) {
  return read(o, &Texture::view, out);
}

CUresult cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  (void)context;
  if (out == nullptr || resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> guard(g_mutex);
  objects()[g_next].resource = *resource;
  *out = g_next++;
  return CUDA_SUCCESS;
}
CUresult cuSurfObjectDestroy(CUsurfObject object) { return destroy(object); }
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUsurfObject o) {
  return read(o, &Texture::resource, out);
}

CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

}  // extern "C"
