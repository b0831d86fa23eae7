// State of this process that a forked child must not inherit.
//
// It lives in pages of its own that the kernel wipes in the child. All zeroes is every such type's initial state (also
// its mutexes'), so fork, _Fork and a raw clone need no handlers, whatever other threads were doing. Never given back:
// the driver is called until the very end of a process.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>

namespace vgpu {

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
    void *pages = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    if (madvise(pages, sizeof(State), MADV_WIPEONFORK) != 0) {
      munmap(pages, sizeof(State));
      return nullptr;
    }
    State *expected = nullptr;
    if (state_.compare_exchange_strong(expected, static_cast<State *>(pages), std::memory_order_acq_rel)) {
      return static_cast<State *>(pages);
    }
    munmap(pages, sizeof(State));
    return expected;
  }

  std::atomic<State *> state_{nullptr};
};

class ScopedLock {
 public:
  explicit ScopedLock(pthread_mutex_t &mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~ScopedLock() { pthread_mutex_unlock(&mutex_); }
  ScopedLock(const ScopedLock &) = delete;
  ScopedLock &operator=(const ScopedLock &) = delete;

 private:
  pthread_mutex_t &mutex_;
};

}  // namespace vgpu
