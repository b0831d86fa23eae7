// What benchmark processes share: anonymous memory, and a gate through which they go all at once.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

#include "clock.h"
#include "failure.h"

namespace bench {

// A T that forked children share with their parent. Pages appear as they are touched, so a large T costs nothing.
template <class T>
class Shared {
 public:
  Shared() {
    void *memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Failure("mmap of %zu shared bytes: %s", sizeof(T), std::strerror(errno));
    value_ = new (memory) T;
  }
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared &) = delete;
  Shared &operator=(const Shared &) = delete;

  T *operator->() const { return value_; }
  T &operator*() const { return *value_; }

 private:
  T *value_;
};

// A number that one process changes and others wait for. std::atomic::wait would use a process-private futex.
class Signal {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void add_one();
  // False when the deadline (now_ns) passed first.
  bool wait_for(std::uint32_t at_least, std::uint64_t deadline) const;

 private:
  std::atomic<std::uint32_t> value_{0};
};

// Children pass(), the parent waits until they are all there and lets them go at once.
class Gate {
 public:
  static constexpr std::uint64_t kPatience = 30 * kSecond;

  void pass() {
    arrived_.add_one();
    if (!opened_.wait_for(1, now_ns() + 2 * kPatience)) throw Failure("the gate stayed shut");
  }
  void await(unsigned processes) const {
    if (!arrived_.wait_for(processes, now_ns() + kPatience)) {
      throw Failure("only %u of %u processes came to the gate", arrived_.value(), processes);
    }
  }
  void open() { opened_.add_one(); }
  void release(unsigned processes) {
    await(processes);
    open();
  }

 private:
  Signal arrived_;
  Signal opened_;
};

}  // namespace bench
