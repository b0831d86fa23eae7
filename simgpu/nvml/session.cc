#include "simgpu/nvml/session.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <mutex>

#include "simgpu/nvml/exported.h"

namespace simgpu {
namespace {

std::mutex g_mutex;
std::atomic<Session *> g_session{nullptr};
Session *g_kept = nullptr;  // the link stays when the count falls to zero: processes initialise again and again
int g_count = 0;

// A child has no part in its parent's link; it may initialise the library anew.
void after_fork_in_child() {
  new (&g_mutex) std::mutex;
  g_session.store(nullptr);
  g_kept = nullptr;
  g_count = 0;
}

}  // namespace

Session *Session::kept() {
  std::lock_guard<std::mutex> guard(g_mutex);
  return g_kept;
}

Session *Session::current() { return g_session.load(std::memory_order_acquire); }

nvmlReturn_t Session::open() {
  std::lock_guard<std::mutex> guard(g_mutex);
  static bool registered = pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0;
  (void)registered;
  if (g_kept == nullptr) {
    auto *session = new Session;
    std::string error;
    if (session->link.connect(false, &error) != 0) {
      if (getenv("SIMGPU_LOG") != nullptr) fprintf(stderr, "simgpu: nvml: %s\n", error.c_str());
      delete session;
      return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    for (LinkedDevice &device : session->link.devices()) {
      session->engines.push_back(std::make_unique<Engine>());
      session->engines.back()->attach(device.state, session->link.slot(), session->link.clock());
    }
    g_kept = session;
  }
  g_count++;
  g_session.store(g_kept, std::memory_order_release);
  return NVML_SUCCESS;
}

nvmlReturn_t Session::close() {
  std::lock_guard<std::mutex> guard(g_mutex);
  if (g_count == 0) return NVML_ERROR_UNINITIALIZED;
  if (--g_count == 0) g_session.store(nullptr, std::memory_order_release);
  return NVML_SUCCESS;
}

// A handle is the address of the device's shared state in this process. Clients pass anything, so find_device compares
// it with those we gave out and never follows it.
nvmlDevice_t to_handle(DeviceState *state) { return reinterpret_cast<nvmlDevice_t>(state); }

DeviceState *find_device(Session *session, nvmlDevice_t handle) {
  for (LinkedDevice &device : session->link.devices())
    if (to_handle(device.state) == handle) return device.state;
  return nullptr;
}

uint64_t monotonic_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t free_device_bytes(Session *session, DeviceState *state) {
  uint64_t held = 0;
  uint32_t end = session->node()->slot_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < end && i < kMaxProcesses; i++)
    held += state->slots[i].held_blocks.load(std::memory_order_relaxed);
  return held < state->block_count ? (state->block_count - held) * kBlockBytes : 0;
}

}  // namespace simgpu

using namespace simgpu;

extern "C" {

nvmlReturn_t nvmlInitWithFlags(unsigned int) { return Session::open(); }
nvmlReturn_t nvmlInit_v2(void) { return exported::nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return exported::nvmlInit_v2(); }
nvmlReturn_t nvmlShutdown(void) { return Session::close(); }

const char *nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return "Function Not Found";
    default:
      return "Unknown Error";
  }
}

}  // extern "C"
