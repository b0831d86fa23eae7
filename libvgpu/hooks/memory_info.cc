// What CUDA shows the job of its GPUs: its limit as the size, its own use as what is taken.
#include <algorithm>

#include "runtime/charge.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

// Saturates where the 32-bit calls cannot say more.
template <typename Size>
Size fit(std::uint64_t bytes) {
  return static_cast<Size>(std::min<std::uint64_t>(bytes, ~Size{0}));
}

// Without a limit the driver's figures are right, and ours are not theirs: managed memory that is on the host is charged.
template <typename Size>
void show_memory(unsigned dev, Size *free, Size *total) {
  if (!is_limited(dev)) return;
  const std::uint64_t limit = job_region().memory_limit(dev);
  settle_for_reader(dev);
  // A block that is charged ahead is there for whoever asks next.
  const std::uint64_t charged = rank().memory_used(dev);
  const std::uint64_t used = charged - std::min(charged, rank().idle(dev));
  if (limit < *total) *total = fit<Size>(limit);
  *free = std::min(*free, fit<Size>(limit > used ? limit - used : 0));
}

template <typename Size, typename Call>
CUresult memory_info(Size *free, Size *total, Call call) {
  // Programs leave out what they do not want to know; the driver says whether they may.
  Size free_now = 0, total_now = 0;
  const CUresult result = call(free != nullptr ? &free_now : nullptr, total != nullptr ? &total_now : nullptr);
  if (result != CUDA_SUCCESS) return result;
  if (mode() == Mode::active) {
    Place place;
    recheck_pools_when_due();
    if (current_place(&place) && place.dev != kNotInJob) {
      show_memory(static_cast<unsigned>(place.dev), &free_now, &total_now);
    }
  }
  if (free != nullptr) *free = free_now;
  if (total != nullptr) *total = total_now;
  return result;
}

template <typename Size, typename Call>
CUresult total_memory(Size *bytes, CUdevice ordinal, Call call) {
  const CUresult result = call();
  if (result != CUDA_SUCCESS || bytes == nullptr || mode() != Mode::active) return result;
  const int dev = region_device(ordinal);
  if (dev == kNotInJob || !is_limited(static_cast<unsigned>(dev))) return result;
  *bytes = std::min(*bytes, fit<Size>(job_region().memory_limit(static_cast<unsigned>(dev))));
  return result;
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  return memory_info(free, total, [](size_t *f, size_t *t) { return REAL(cuMemGetInfo_v2)(f, t); });
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
  return memory_info(free, total, [](unsigned int *f, unsigned int *t) { return REAL(cuMemGetInfo)(f, t); });
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  return total_memory(bytes, device, [&] { return REAL(cuDeviceTotalMem_v2)(bytes, device); });
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
  return total_memory(bytes, device, [&] { return REAL(cuDeviceTotalMem)(bytes, device); });
}

}  // extern "C"
