// Schemes that do everything under a lock: they differ in the lock alone.
//
// A Lock lives in shared memory and has lock_exclusive(), lock_shared(), unlock(). The total is kept in one word, so
// that the figures show what the lock costs, not what summing costs; it is recounted when a holder died.
#pragma once

#include "board.h"

namespace bench {

enum class Locked { no, yes, after_death };  // no: the lock's own patience ended

template <class Lock>
class LockedScheme final : public BoardScheme {
 public:
  using BoardScheme::BoardScheme;

  bool reserve(std::uint64_t bytes) override {
    const Locked locked = lock_->lock_exclusive();
    if (locked == Locked::no) return false;
    if (locked == Locked::after_death) recount();
    if (total() + bytes > limit_) recount();
    const bool fits = total() + bytes <= limit_;
    if (fits) add(bytes);
    lock_->unlock();
    return fits;
  }

  // A release that gave up would lose the bytes for ever.
  void release(std::uint64_t bytes) override {
    Locked locked;
    while ((locked = lock_->lock_exclusive()) == Locked::no) {
    }
    if (locked == Locked::after_death) recount();
    add(-bytes);
    lock_->unlock();
  }

  std::uint64_t used() override {
    while (lock_->lock_shared() == Locked::no) {
    }
    const std::uint64_t bytes = total();
    lock_->unlock();
    return bytes;
  }

  Picture picture() override {
    while (lock_->lock_shared() == Locked::no) {
    }
    const Picture picture = sum_fields();
    lock_->unlock();
    return picture;
  }

 private:
  std::uint64_t total() const { return board_->used.load(std::memory_order_relaxed); }
  // Plain stores, as one writes under a lock.
  void add(std::uint64_t bytes) {
    board_->used.store(total() + bytes, std::memory_order_relaxed);
    own().total.store(own().total.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    own().data.store(own().data.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  void recount() {
    sweep();
    board_->used.store(sum_totals(), std::memory_order_relaxed);
  }

  Shared<Lock> lock_;
};

}  // namespace bench
