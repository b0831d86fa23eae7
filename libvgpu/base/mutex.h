// Mutexes of one process, and which of them guards what.
//
// The macros are clang's thread-safety attributes: its build fails where a guarded field is touched without its mutex, or
// a function is called without one that it requires. Other compilers see nothing. docs/architecture.md says in which order
// mutexes may be taken.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#if defined(__clang__)
#define VGPU_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define VGPU_THREAD_ATTRIBUTE(attribute)
#endif

// On a field: touched only while the mutex is held.
#define VGPU_GUARDED_BY(mutex) VGPU_THREAD_ATTRIBUTE(guarded_by(mutex))
// On a function: called only while the mutex is held.
#define VGPU_REQUIRES(mutex) VGPU_THREAD_ATTRIBUTE(requires_capability(mutex))
// On a function that takes a mutex which its caller cannot name.
#define VGPU_UNCHECKED_LOCKS VGPU_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace vgpu {

// All zeroes is unlocked, so one can lie in pages that are only ever zeroed (wiped.h): there is no constructor to run.
class VGPU_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() VGPU_THREAD_ATTRIBUTE(acquire_capability()) { pthread_mutex_lock(&mutex_); }
  void unlock() VGPU_THREAD_ATTRIBUTE(release_capability()) { pthread_mutex_unlock(&mutex_); }
  // Does nothing. For lambdas, which are checked as functions of their own: it says that whoever calls this one holds it.
  void assert_held() const VGPU_THREAD_ATTRIBUTE(assert_capability(this)) {}

 private:
  friend class Condition;

  pthread_mutex_t mutex_;
};

// All zeroes is a condition that nobody waits for.
class Condition {
 public:
  void wait(Mutex &mutex) VGPU_REQUIRES(mutex) { pthread_cond_wait(&condition_, &mutex.mutex_); }
  void signal() { pthread_cond_signal(&condition_); }

 private:
  pthread_cond_t condition_;
};

// For a few loads and stores on a hot path: a third of what a Mutex costs while nobody else wants it, as it is given back by
// a plain store. A thread that has gone to sleep just then may be overlooked, and so wakes up by itself in a moment. All
// zeroes is unlocked here, too.
class VGPU_THREAD_ATTRIBUTE(capability("mutex")) FastMutex {
 public:
  void lock() VGPU_THREAD_ATTRIBUTE(acquire_capability()) {
    if (__builtin_expect(held_.exchange(1, std::memory_order_acquire) != 0, false)) wait();
  }
  void unlock() VGPU_THREAD_ATTRIBUTE(release_capability()) {
    held_.store(0, std::memory_order_release);
    if (__builtin_expect(waiting_.load(std::memory_order_relaxed) != 0, false)) wake();
  }
  void assert_held() const VGPU_THREAD_ATTRIBUTE(assert_capability(this)) {}

 private:
  void wait();
  void wake();

  std::atomic<std::uint32_t> held_;
  std::atomic<std::uint32_t> waiting_;  // threads
};

template <typename Lock>
class VGPU_THREAD_ATTRIBUTE(scoped_lockable) ScopedLock {
 public:
  explicit ScopedLock(Lock &mutex) VGPU_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~ScopedLock() VGPU_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  ScopedLock(const ScopedLock &) = delete;
  ScopedLock &operator=(const ScopedLock &) = delete;

 private:
  Lock &mutex_;
};

}  // namespace vgpu
