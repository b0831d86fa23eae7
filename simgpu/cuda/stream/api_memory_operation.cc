// Stream memory operations: words that a stream writes, or waits for, when its turn comes.
#include <unistd.h>

#include "simgpu/cuda/graph/capture.h"
#include "simgpu/cuda/memory/copy.h"
#include "simgpu/cuda/stream/stream.h"

using namespace simgpu;

namespace {

// How long a stream that waits for a word lets it be between two looks.
constexpr useconds_t kLookUs = 20;

template <typename Word>
bool is_met(Word found, Word value, unsigned condition) {
  using Signed = std::make_signed_t<Word>;
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<Signed>(found - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & value) != 0;
    default:
      return static_cast<Word>(~(found | value)) != 0;
  }
}

// What both kinds start with.
CUresult find_word(Driver *driver, Context *context, CUstream handle, bool per_thread, CUdeviceptr address,
                   size_t length, Stream **stream) {
  *stream = find_stream(driver, context, handle, per_thread);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (address == 0 || address % length != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = forbid_implicit_order(driver, *stream)) return result;
  // A driver records a node that the simulator's graphs do not have.
  if ((*stream)->capture != nullptr) return forbid_in_capture(driver, *stream);
  return check_device_range(driver, address, length) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename Word>
CUresult write_value(CUstream handle, CUdeviceptr address, Word value, unsigned flags, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
  Stream *stream;
  if (CUresult result = find_word(driver, context, handle, per_thread, address, sizeof value, &stream)) return result;
  Device *device = context->device;
  submit(stream, [=] { copy_bytes(driver, device, address, reinterpret_cast<uint64_t>(&value), sizeof value); });
  return CUDA_SUCCESS;
}

// What comes behind it waits like behind a host function. The wait ends with the memory, should that be freed.
template <typename Word>
CUresult wait_value(CUstream handle, CUdeviceptr address, Word value, unsigned flags, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  Stream *stream;
  if (CUresult result = find_word(driver, context, handle, per_thread, address, sizeof value, &stream)) return result;
  Device *device = context->device;
  order_with_default_stream(stream);
  enqueue(stream, ItemKind::kHold, [=] {
    for (;;) {
      Word found = 0;
      if (!check_device_range(driver, address, sizeof found)) return;
      if (copy_bytes(driver, device, reinterpret_cast<uint64_t>(&found), address, sizeof found) != CUDA_SUCCESS) return;
      if (is_met(found, value, flags)) return;
      usleep(kLookUs);
    }
  });
  return CUDA_SUCCESS;
}

}  // namespace

#define VALUE_CALLS(name, word, work)                                                             \
  CUresult name(CUstream stream, CUdeviceptr address, word value, unsigned int flags) {           \
    return work(stream, address, value, flags, false);                                            \
  }                                                                                               \
  CUresult name##_ptsz(CUstream stream, CUdeviceptr address, word value, unsigned int flags) {    \
    return work(stream, address, value, flags, true);                                             \
  }                                                                                               \
  CUresult name##_v2(CUstream stream, CUdeviceptr address, word value, unsigned int flags) {      \
    return work(stream, address, value, flags, false);                                            \
  }                                                                                               \
  CUresult name##_v2_ptsz(CUstream stream, CUdeviceptr address, word value, unsigned int flags) { \
    return work(stream, address, value, flags, true);                                             \
  }

extern "C" {

VALUE_CALLS(cuStreamWriteValue32, cuuint32_t, write_value)
VALUE_CALLS(cuStreamWriteValue64, cuuint64_t, write_value)
VALUE_CALLS(cuStreamWaitValue32, cuuint32_t, wait_value)
VALUE_CALLS(cuStreamWaitValue64, cuuint64_t, wait_value)

}  // extern "C"
