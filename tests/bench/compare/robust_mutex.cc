// One robust mutex per device: the kernel hands a dead holder's lock to a waiter. Not in the documents; the best that a
// lock can do.
#include <pthread.h>

#include <cerrno>

#include "locked.h"

namespace bench {
namespace {

class RobustMutex {
 public:
  RobustMutex() {
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex_, &robust);
    pthread_mutexattr_destroy(&robust);
  }

  Locked lock_exclusive() {
    if (pthread_mutex_lock(&mutex_) != EOWNERDEAD) return Locked::yes;
    pthread_mutex_consistent(&mutex_);
    return Locked::after_death;
  }
  Locked lock_shared() { return lock_exclusive(); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

}  // namespace

std::unique_ptr<Scheme> make_robust_mutex(const SchemeSetting &setting) {
  return std::make_unique<LockedScheme<RobustMutex>>(setting);
}

}  // namespace bench
