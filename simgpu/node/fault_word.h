// Whether a call has to ask for faults at all: one word, zero while there is nothing to ask for.
#pragma once

#include <atomic>
#include <cstdint>

namespace simgpu {

// Points to this process's own word, which is never zero, until it is known that the environment asks for no fault; then
// to the node's, which its kernel process changes.
[[gnu::visibility("hidden")]] extern std::atomic<const std::atomic<uint32_t> *> g_fault_word;

// Relaxed: a fault that is asked for while calls are under way hits the next one, or the one after that.
inline bool may_be_faulty() {
  return g_fault_word.load(std::memory_order_relaxed)->load(std::memory_order_relaxed) != 0;
}

// The node's word, once there is a link to the node; null before, and in a forked child, which does not have that memory.
const std::atomic<uint32_t> *node_fault_word();
void set_node_fault_word(const std::atomic<uint32_t> *word);

}  // namespace simgpu
