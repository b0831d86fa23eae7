#include "simgpu/node/counted_call.h"

#include <pthread.h>

namespace simgpu {
namespace {

constinit std::atomic<ProcessSlot *> g_slot{nullptr};

}  // namespace

ProcessSlot *counted_slot() { return g_slot.load(std::memory_order_acquire); }

void set_counted_slot(ProcessSlot *slot) {
  static bool registered = pthread_atfork(nullptr, nullptr, [] { g_slot.store(nullptr); }) == 0;
  (void)registered;
  g_slot.store(slot, std::memory_order_release);
}

}  // namespace simgpu
