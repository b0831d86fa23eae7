#include "simgpu/node/fault_word.h"

#include <pthread.h>

namespace simgpu {
namespace {

constinit const std::atomic<uint32_t> g_own_word{1};
constinit std::atomic<const std::atomic<uint32_t> *> g_node_word{nullptr};

void after_fork_in_child() {
  g_node_word.store(nullptr);
  g_fault_word.store(&g_own_word);
}

}  // namespace

constinit std::atomic<const std::atomic<uint32_t> *> g_fault_word{&g_own_word};

const std::atomic<uint32_t> *node_fault_word() { return g_node_word.load(std::memory_order_acquire); }

void set_node_fault_word(const std::atomic<uint32_t> *word) {
  static bool registered = pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0;
  (void)registered;
  g_node_word.store(word, std::memory_order_release);
}

}  // namespace simgpu
