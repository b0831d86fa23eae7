#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <new>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/memory/pool.h"
#include "simgpu/node/config.h"

namespace simgpu {

std::atomic<Driver *> g_driver{nullptr};
thread_local constinit ThreadState t_thread{};

namespace {

std::mutex g_init_mutex;
// A child forked after cuInit cannot use the driver and cannot start it anew either.
std::atomic<bool> g_forked{false};

void after_fork_in_child() {
  new (&g_init_mutex) std::mutex;  // another thread of the parent may have held it, and is not here to release it
  if (g_driver.load(std::memory_order_relaxed) == nullptr) return;
  g_driver.store(nullptr, std::memory_order_relaxed);
  g_forked.store(true, std::memory_order_relaxed);
  t_thread.depth = 0;
}

// CUDA_VISIBLE_DEVICES: numbers or (unique beginnings of) UUIDs; the list ends at the first entry that means nothing.
std::vector<Device *> visible(const std::vector<Device *> &all) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return all;
  std::vector<Device *> chosen;
  std::string list = text;
  for (size_t at = 0; at <= list.size();) {
    size_t comma = std::min(list.find(',', at), list.size());
    std::string item = list.substr(at, comma - at);
    at = comma + 1;
    while (!item.empty() && item.front() == ' ') item.erase(0, 1);
    while (!item.empty() && item.back() == ' ') item.pop_back();
    Device *found = nullptr;
    if (item.rfind("GPU-", 0) == 0) {
      int matches = 0;
      for (Device *device : all)
        if (format_uuid(device->facts().uuid).rfind(item, 0) == 0) {
          found = device;
          matches++;
        }
      if (matches != 1) found = nullptr;
    } else {
      char *end = nullptr;
      long number = strtol(item.c_str(), &end, 10);
      if (end != item.c_str() && *end == '\0' && number >= 0 && number < static_cast<long>(all.size()))
        found = all[static_cast<size_t>(number)];
    }
    if (found == nullptr) break;
    // A device named twice makes the whole list invalid.
    if (std::find(chosen.begin(), chosen.end(), found) != chosen.end()) return {};
    chosen.push_back(found);
  }
  return chosen;
}

bool logging() {
  static const bool on = getenv("SIMGPU_LOG") != nullptr;
  return on;
}

}  // namespace

void log_line(const char *format, ...) {
  if (!logging()) return;
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  fprintf(stderr, "simgpu: %s\n", line);
}

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

CUresult Driver::start() {
  std::string error;
  if (link.connect(true, &error) != 0) {
    // Without its node the simulated driver is a driver without a kernel module; say why even when not asked to log.
    fprintf(stderr, "simgpu: %s\n", error.c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  if (!addresses.start()) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<Device *> all;
  for (LinkedDevice &linked : link.devices()) {
    auto *device = new Device;
    device->state = linked.state;
    device->books = &linked.state->slots[link.slot()];
    device->blocks.attach(linked.state, linked.bytes, link.slot());
    device->engine.attach(linked.state, link.slot(), link.clock());
    const DeviceFacts &facts = device->facts();
    device->launches_cost =
        facts.launch_ns != 0 || facts.function_bytes != 0 || facts.function_ns != 0 || facts.local_memory_grows != 0;
    all.push_back(device);
  }
  const char *order = getenv("CUDA_DEVICE_ORDER");
  if (order == nullptr || strcmp(order, "PCI_BUS_ID") != 0)
    std::stable_sort(all.begin(), all.end(), [](Device *a, Device *b) {
      auto speed = [](Device *d) { return uint64_t{d->facts().sm_count} * d->facts().clock_mhz; };
      return speed(a) > speed(b);
    });
  for (Device *device : visible(all)) {
    device->ordinal = static_cast<int>(devices.size());
    devices.push_back(device);
    make_device_pools(this, device);
  }
  return devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

Area *Driver::new_area() {
  if (spare_areas_.empty()) return new Area;
  Area *area = spare_areas_.back();
  spare_areas_.pop_back();
  return area;
}

Area *Driver::new_slab(unsigned size_class) {
  if (spare_slabs_[size_class].empty()) return nullptr;
  Area *slab = spare_slabs_[size_class].back();
  spare_slabs_[size_class].pop_back();
  return slab;
}

void Driver::delete_area(Area *area) {
  area->blocks.clear();
  area->share_id = 0;
  area->touched = false;
  area->context = nullptr;
  area->previous = area->next = nullptr;
  if (area->kind == AreaKind::kLinear) {
    spare_areas_.push_back(area);
  } else if (area->kind == AreaKind::kSlab && area->piece_bytes != 0 && area->pieces_used == 0 &&
             spare_slabs_[area->size_class].size() < 16) {
    spare_slabs_[area->size_class].push_back(area);  // all its pieces are on its list of free ones
  } else {
    delete area;
  }
}

CUresult current_context(Driver *driver, Context **context) {
  *context = top_context();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!(*context)->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if ((*context)->home != nullptr) {
    *context = (*context)->home;
    if (!(*context)->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if ((*context)->device->broken()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (!driver->link.alive()) return CUDA_ERROR_OPERATING_SYSTEM;
  return CUDA_SUCCESS;
}

Context *valid_context(CUcontext handle) {
  auto *context = reinterpret_cast<Context *>(handle);
  return context != nullptr && context->magic == kContextMagic ? context : nullptr;
}

bool take_blocks(Driver *driver, Device *device, uint64_t bytes, BlockUse use, BlockList *out) {
  auto count = static_cast<uint32_t>(std::min<uint64_t>(round_up(bytes, kBlockBytes) / kBlockBytes, UINT32_MAX));
  if (device->blocks.take(count, use, out)) return true;
  if (use == BlockUse::kManaged || driver->managed.empty()) return false;
  evict_managed(driver, device);
  return device->blocks.take(count, use, out);
}

}  // namespace simgpu

using namespace simgpu;

extern "C" CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (g_driver.load(std::memory_order_acquire) != nullptr) return CUDA_SUCCESS;
  if (g_forked.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_INITIALIZED;
  // Before the mutex is taken for the first time: a fork while it is held must find the handler in place.
  static bool registered = pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0;
  (void)registered;
  std::lock_guard<std::mutex> guard(g_init_mutex);
  if (g_driver.load(std::memory_order_acquire) != nullptr) return CUDA_SUCCESS;
  static CUresult failure = CUDA_SUCCESS;
  if (failure != CUDA_SUCCESS) return failure;
  auto *driver = new Driver;  // never deleted: clients call the driver while they exit
  CUresult result = driver->start();
  if (result == CUDA_SUCCESS)
    g_driver.store(driver, std::memory_order_release);
  else
    failure = result;
  return result;
}
