// Mutexes of one process.
#pragma once

#include <pthread.h>

namespace vgpu {

// All zeroes is unlocked, so one can lie in pages that are only ever zeroed (wiped.h): there is no constructor to run.
class Mutex {
 public:
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  friend class Condition;

  pthread_mutex_t mutex_;
};

// All zeroes is a condition that nobody waits for.
class Condition {
 public:
  void wait(Mutex &mutex) { pthread_cond_wait(&condition_, &mutex.mutex_); }
  void signal() { pthread_cond_signal(&condition_); }

 private:
  pthread_cond_t condition_;
};

class ScopedLock {
 public:
  explicit ScopedLock(Mutex &mutex) : mutex_(mutex) { mutex_.lock(); }
  ~ScopedLock() { mutex_.unlock(); }
  ScopedLock(const ScopedLock &) = delete;
  ScopedLock &operator=(const ScopedLock &) = delete;

 private:
  Mutex &mutex_;
};

}  // namespace vgpu
