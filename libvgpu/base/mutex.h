// Mutexes of one process, and which of them guards what.
//
// The macros are clang's thread-safety attributes: its build fails where a guarded field is touched without its mutex, or
// a function is called without one that it requires. Other compilers see nothing. docs/architecture.md says in which order
// mutexes may be taken.
#pragma once

#include <pthread.h>

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

class VGPU_THREAD_ATTRIBUTE(scoped_lockable) ScopedLock {
 public:
  explicit ScopedLock(Mutex &mutex) VGPU_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~ScopedLock() VGPU_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  ScopedLock(const ScopedLock &) = delete;
  ScopedLock &operator=(const ScopedLock &) = delete;

 private:
  Mutex &mutex_;
};

}  // namespace vgpu
