#include "simgpu/cuda/memory/copy.h"

#include <algorithm>
#include <cstring>

#include "simgpu/cuda/memory/vmm.h"

namespace simgpu {
namespace {

const HostRange *find_host(Driver *driver, uint64_t address, uint64_t *end) {
  auto it = driver->host_ranges.upper_bound(address);
  if (it == driver->host_ranges.begin()) return nullptr;
  --it;
  if (address >= it->first + it->second.bytes) return nullptr;
  *end = it->first + it->second.bytes;
  return &it->second;
}

// Expects the lock. The longest directly reachable run at `address`.
bool locate(Driver *driver, CUdeviceptr address, bool write, Device *accessor, Span *span) {
  Area *area = driver->addresses.find(address);
  if (area == nullptr) {
    uint64_t end;
    if (find_host(driver, address, &end) == nullptr) return false;
    *span = {reinterpret_cast<char *>(address), end - address};
    return true;
  }
  uint64_t offset = address - area->base;
  uint64_t in_page = offset % kBlockBytes;
  if (area->kind == AreaKind::kReserved) {
    const Area::Page &page = area->pages[offset / kBlockBytes];
    if (page.handle == nullptr || page.access == CU_MEM_ACCESS_FLAGS_PROT_NONE) return false;
    if (page.handle->multicast != nullptr) return false;  // kernels alone reach memory through one
    if (write && page.access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return false;
    page.handle->touched |= write;
    char *start = page.handle->device != nullptr ? page.handle->device->blocks.at(page.handle->blocks[page.index])
                                                 : page.handle->host_bytes + page.index * kBlockBytes;
    *span = {start + in_page, kBlockBytes - in_page};
    return true;
  }
  if (area->kind == AreaKind::kManaged) {
    if (write && accessor != nullptr) make_resident(driver, area, accessor);
    *span = {reinterpret_cast<char *>(address), area->user_bytes - offset};
    return true;
  }
  if (offset / kBlockBytes >= area->blocks.size()) return false;
  area->touched |= write;
  *span = {area->device->blocks.at(area->blocks[offset / kBlockBytes]) + in_page, kBlockBytes - in_page};
  return true;
}

bool range_known(Driver *driver, CUdeviceptr address, size_t length) {
  Area *area = driver->addresses.find(address);
  if (area == nullptr) {
    uint64_t end;
    return find_host(driver, address, &end) != nullptr && length <= end - address;
  }
  if (area->kind == AreaKind::kGraph && area->blocks.empty()) return false;  // its graph has not run
  if (area->kind == AreaKind::kReserved) {
    if (length == 0 || length > area->base + area->bytes - address) return length == 0;
    uint64_t last = (address + length - 1 - area->base) / kBlockBytes;
    for (uint64_t page = (address - area->base) / kBlockBytes; page <= last; page++)
      if (area->pages[page].handle == nullptr || area->pages[page].access == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        return false;
    return true;
  }
  if (area->kind == AreaKind::kImported) return length <= area->base + area->bytes - address;
  Allocation allocation;
  if (!driver->addresses.find_allocation(address, &allocation)) return false;
  return length <= allocation.base + allocation.bytes - address;
}

}  // namespace

bool is_device_address(Driver *driver, uint64_t address) {
  DriverLock lock(driver->mutex);
  return driver->addresses.find(address) != nullptr;
}

bool check_device_range(Driver *driver, CUdeviceptr address, size_t length) {
  DriverLock lock(driver->mutex);
  return range_known(driver, address, length);
}

bool device_span(Driver *driver, CUdeviceptr address, bool write, Device *accessor, Span *span) {
  DriverLock lock(driver->mutex);
  return locate(driver, address, write, accessor, span);
}

void write_device(Driver *driver, CUdeviceptr to, const void *from, size_t length) {
  auto *source = static_cast<const char *>(from);
  Span span;
  while (length > 0 && locate(driver, to, true, nullptr, &span)) {
    size_t n = std::min(length, span.length);
    memcpy(span.bytes, source, n);
    to += n;
    source += n;
    length -= n;
  }
}

CUresult copy_bytes(Driver *driver, Device *accessor, uint64_t to, uint64_t from, size_t length) {
  bool to_device = is_device_address(driver, to);
  bool from_device = is_device_address(driver, from);
  if (to_device && !check_device_range(driver, to, length)) return CUDA_ERROR_INVALID_VALUE;
  if (from_device && !check_device_range(driver, from, length)) return CUDA_ERROR_INVALID_VALUE;
  while (length > 0) {
    Span target{reinterpret_cast<char *>(to), length};
    Span source{reinterpret_cast<char *>(from), length};
    if (to_device && !device_span(driver, to, true, accessor, &target)) return CUDA_ERROR_INVALID_VALUE;
    if (from_device && !device_span(driver, from, false, accessor, &source)) return CUDA_ERROR_INVALID_VALUE;
    size_t n = std::min({length, target.length, source.length});
    memmove(target.bytes, source.bytes, n);
    to += n;
    from += n;
    length -= n;
  }
  return CUDA_SUCCESS;
}

CUresult fill_bytes(Driver *driver, Device *accessor, CUdeviceptr to, uint32_t value, unsigned width, size_t count) {
  size_t length = count * width;
  if (to % width != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!check_device_range(driver, to, length)) return CUDA_ERROR_INVALID_VALUE;
  bool zero = value == 0;
  while (length > 0) {
    Span span;
    if (!device_span(driver, to, true, accessor, &span)) return CUDA_ERROR_INVALID_VALUE;
    size_t n = std::min(length, span.length);
    Area *area = nullptr;
    if (zero && n == kBlockBytes) {
      DriverLock lock(driver->mutex);
      area = driver->addresses.find(to);
      // Whole blocks of zeros need no host memory: a client that clears 60 GiB must not take 60 GiB.
      if (area != nullptr && (area->kind == AreaKind::kManaged || area->kind == AreaKind::kReserved)) area = nullptr;
      if (area != nullptr) area->device->blocks.clear(area->blocks[(to - area->base) / kBlockBytes]);
    }
    if (area == nullptr) {
      if (width == 1 || zero) {
        memset(span.bytes, static_cast<int>(value & 0xff), n);
      } else if (width == 2) {
        std::fill_n(reinterpret_cast<uint16_t *>(span.bytes), n / 2, static_cast<uint16_t>(value));
      } else {
        std::fill_n(reinterpret_cast<uint32_t *>(span.bytes), n / 4, value);
      }
    }
    to += n;
    length -= n;
  }
  return CUDA_SUCCESS;
}

}  // namespace simgpu
