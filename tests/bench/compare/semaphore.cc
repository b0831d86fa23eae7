// A semaphore with timeouts, as the documents leave it after their first repair: 1 s a wait instead of 10, 5 tries
// instead of 30, a fresh deadline for each, and a lock whose holder died taken over by exactly one waiter.
#include <semaphore.h>

#include <ctime>

#include "locked.h"

namespace bench {
namespace {

class TimedSemaphore {
 public:
  TimedSemaphore() { sem_init(&semaphore_, 1, 1); }

  Locked lock_exclusive() {
    const pid_t self = own_pid();
    for (int attempt = 0; attempt < kTries; ++attempt) {
      timespec deadline;
      clock_gettime(CLOCK_REALTIME, &deadline);
      deadline.tv_sec += kSeconds;
      if (sem_timedwait(&semaphore_, &deadline) == 0) {
        // Whoever is killed in front of this line leaves a lock without a holder, which nobody can ever take over.
        holder_.store(self, std::memory_order_relaxed);
        return Locked::yes;
      }
      pid_t holder = holder_.load();
      if (holder != 0 && is_gone(holder) && holder_.compare_exchange_strong(holder, self)) return Locked::after_death;
    }
    return Locked::no;
  }
  Locked lock_shared() { return lock_exclusive(); }

  void unlock() {
    holder_.store(0, std::memory_order_relaxed);
    sem_post(&semaphore_);
  }

 private:
  static constexpr int kTries = 5;
  static constexpr int kSeconds = 1;

  sem_t semaphore_;
  std::atomic<pid_t> holder_{0};
};

}  // namespace

std::unique_ptr<Scheme> make_semaphore(const SchemeSetting &setting) {
  return std::make_unique<LockedScheme<TimedSemaphore>>(setting);
}

}  // namespace bench
