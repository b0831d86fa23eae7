// cuLink*: collects its inputs and returns them packed together. Nothing is compiled.
#include <cstring>
#include <fstream>
#include <sstream>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/module/image.h"
#include "simgpu/cuda/module/module.h"

namespace {

constexpr uint32_t kLinkMagic = 0x4c4e4b31;

struct Link {
  uint32_t magic = kLinkMagic;
  std::vector<std::string> parts;
  std::string result;
};

Link *valid_link(CUlinkState handle) {
  auto *link = reinterpret_cast<Link *>(handle);
  return link != nullptr && link->magic == kLinkMagic ? link : nullptr;
}

// Reports an empty log to whoever asked for one.
void empty_logs(unsigned count, CUjit_option *options, void **values) {
  for (unsigned i = 0; i < count; i++)
    if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      values[i] = nullptr;
    else if ((options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER) && values[i] != nullptr)
      *static_cast<char *>(values[i]) = '\0';
}

}  // namespace

using namespace simgpu;

extern "C" {

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *out) {
  SIMGPU_CONTEXT(driver, context);
  (void)driver;
  (void)context;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  empty_logs(count, options, values);
  *out = reinterpret_cast<CUlinkState>(new Link);
  return CUDA_SUCCESS;
}
CUresult cuLinkCreate(unsigned int count, CUjit_option *options, void **values, CUlinkState *out) {
  return cuLinkCreate_v2(count, options, values, out);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned int, CUjit_option *, void **) {
  Link *link = valid_link(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  std::string part(static_cast<const char *>(data), size);
  // Static libraries and LTO input contribute no kernels that the simulator could name.
  if (type == CU_JIT_INPUT_LIBRARY || type == CU_JIT_INPUT_NVVM) {
    log_line("link: %s: inputs of type %d are left out", name != nullptr ? name : "?", static_cast<int>(type));
    return CUDA_SUCCESS;
  }
  Image image;
  std::string padded = part + std::string(64, '\0');
  if (!read_image(padded.c_str(), &image))
    return type == CU_JIT_INPUT_PTX ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
  link->parts.push_back(padded);
  return CUDA_SUCCESS;
}
CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                       unsigned int count, CUjit_option *options, void **values) {
  return cuLinkAddData_v2(state, type, data, size, name, count, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                          CUjit_option *options, void **values) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::stringstream bytes;
  bytes << file.rdbuf();
  std::string text = bytes.str();
  return cuLinkAddData_v2(state, type, text.data(), text.size(), path, count, options, values);
}
CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                       CUjit_option *options, void **values) {
  return cuLinkAddFile_v2(state, type, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState state, void **cubin, size_t *size) {
  Link *link = valid_link(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (cubin == nullptr) return CUDA_ERROR_INVALID_VALUE;
  link->result = pack_linked(link->parts);
  *cubin = link->result.data();
  if (size != nullptr) *size = link->result.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  Link *link = valid_link(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  link->magic = 0;
  delete link;
  return CUDA_SUCCESS;
}

}  // extern "C"
