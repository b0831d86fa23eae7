// State of this process that a forked child must not inherit.
//
// It lives in pages of its own that the kernel wipes in the child. All zeroes is every such type's initial state (also
// its mutexes'), so fork, _Fork and a raw clone need no handlers, whatever other threads were doing. Never given back:
// the driver is called until the very end of a process.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>

#include "error.h"

namespace vgpu {

// `size` bytes of zeroes, in pages that are zeroes again in a forked child.
Error map_wiped_on_fork(std::size_t size, void **pages);

template <typename State>
class WipedOnFork {
 public:
  // Null: no memory.
  State *get() {
    State *state = state_.load(std::memory_order_acquire);
    return state != nullptr ? state : make();
  }

 private:
  [[gnu::cold]] State *make() {
    void *pages = nullptr;
    if (map_wiped_on_fork(sizeof(State), &pages)) return nullptr;
    State *expected = nullptr;
    if (state_.compare_exchange_strong(expected, static_cast<State *>(pages), std::memory_order_acq_rel)) {
      return static_cast<State *>(pages);
    }
    munmap(pages, sizeof(State));
    return expected;
  }

  std::atomic<State *> state_{nullptr};
};

}  // namespace vgpu
