#include "board.h"

#include <unistd.h>
#include <csignal>

#include <cerrno>

namespace bench {

namespace {

pid_t attached_pid = 0;

}  // namespace

pid_t own_pid() { return attached_pid; }

bool is_gone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

void BoardScheme::attach(unsigned slot) {
  attached_pid = getpid();
  own_ = &board_->slots[slot];
  own_->seq.store(0);
  own_->total.store(0);
  own_->data.store(0);
  own_->pid.store(attached_pid);
  unsigned seen = board_->attached.load();
  while (seen <= slot && !board_->attached.compare_exchange_weak(seen, slot + 1)) {
  }
}

std::uint64_t BoardScheme::sum_totals() const {
  std::uint64_t sum = 0;
  for (unsigned i = 0; i < attached(); ++i) sum += board_->slots[i].total.load(std::memory_order_relaxed);
  return sum;
}

Picture BoardScheme::sum_fields() const {
  Picture picture;
  for (unsigned i = 0; i < attached(); ++i) {
    picture.total += board_->slots[i].total.load(std::memory_order_acquire);
    picture.parts += board_->slots[i].data.load(std::memory_order_acquire);
  }
  return picture;
}

std::uint64_t BoardScheme::sweep() const {
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < attached(); ++i) bytes += clear_if_gone(board_->slots[i]);
  return bytes;
}

std::uint64_t BoardScheme::clear_if_gone(RankSlot &slot) const {
  pid_t pid = slot.pid.load();
  if (pid == 0 || !is_gone(pid) || !slot.pid.compare_exchange_strong(pid, 0)) return 0;
  const std::uint64_t bytes = slot.total.exchange(0);
  slot.data.store(0);
  slot.seq.store(0);
  return bytes;
}

}  // namespace bench
