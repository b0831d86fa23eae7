// A read-write lock for what happens at run time (attaching has a lock of its own in the documents; here it needs
// none). A wait fails after 100 ms, as they have it. A holder that is stopped or killed is never replaced.
#include <pthread.h>

#include <ctime>

#include "../clock.h"
#include "locked.h"

namespace bench {
namespace {

class TimedRwlock {
 public:
  TimedRwlock() {
    pthread_rwlockattr_t shared;
    pthread_rwlockattr_init(&shared);
    pthread_rwlockattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_init(&lock_, &shared);
    pthread_rwlockattr_destroy(&shared);
  }

  Locked lock_exclusive() {
    const timespec until = deadline();
    return pthread_rwlock_timedwrlock(&lock_, &until) == 0 ? Locked::yes : Locked::no;
  }
  Locked lock_shared() {
    const timespec until = deadline();
    return pthread_rwlock_timedrdlock(&lock_, &until) == 0 ? Locked::yes : Locked::no;
  }
  void unlock() { pthread_rwlock_unlock(&lock_); }

 private:
  static timespec deadline() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const std::uint64_t ns = static_cast<std::uint64_t>(now.tv_nsec) + 100 * kMillisecond;
    return {now.tv_sec + static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
  }

  pthread_rwlock_t lock_;
};

}  // namespace

std::unique_ptr<Scheme> make_rwlock(const SchemeSetting &setting) {
  return std::make_unique<LockedScheme<TimedRwlock>>(setting);
}

}  // namespace bench
