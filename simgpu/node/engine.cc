#include "simgpu/node/engine.h"

#include <unistd.h>

#include <algorithm>

namespace simgpu {
namespace {

// Another process that is not waiting, but about to launch, gets this long before a waiting one moves the clock on.
constexpr useconds_t kCourtesyUs = 50;
constexpr uint64_t kForesightNs = 5000000;

constexpr unsigned kHeaderWords = offsetof(Schedule, finished) / sizeof(uint64_t);
constexpr unsigned kRunnersAt = offsetof(Schedule, runners) / sizeof(uint64_t);
constexpr unsigned kFinishedWords = sizeof(Finished) / sizeof(uint64_t);
constexpr unsigned kRunnerWords = sizeof(Runner) / sizeof(uint64_t);

// Calls `move(first, count)` for the parts of a schedule that mean something.
template <typename Move>
void for_used_words(const Schedule &schedule, Move move) {
  move(0u, kHeaderWords);
  move(kHeaderWords, static_cast<unsigned>(std::min<uint64_t>(schedule.finished_count, kMaxFinished)) * kFinishedWords);
  move(kRunnersAt, static_cast<unsigned>(std::min<uint64_t>(schedule.runner_count, kMaxProcesses)) * kRunnerWords);
}

}  // namespace

void Engine::attach(DeviceState *device, unsigned slot, ClockPage *clock) {
  device_ = device;
  shared_ = &device->schedule;
  slot_ = slot;
  clock_ = clock;
  queue_ = &shared_->queues[slot];
  generation_ = queue_->generation.load(std::memory_order_acquire);
  first_ = queue_->submitted.load(std::memory_order_relaxed);
  copy_ = std::make_unique_for_overwrite<Schedule>();
}

uint64_t Engine::launch(uint64_t duration_ns, uint64_t after, uint64_t sms) {
  if (!owns_queue()) return first_;  // it has ended, like all that this process ever launched
  uint64_t number = queue_->submitted.load(std::memory_order_relaxed) + 1;
  uint64_t depth = device_->facts.queue_depth;
  if (number > queue_->done.load(std::memory_order_acquire) + depth && !ended_slowly(number - depth)) return 0;
  LaunchEntry &entry = queue_->entries[number % kQueueEntries];
  entry.arrival_ns.store(clock_->now_ns() + device_->facts.doorbell_ns, std::memory_order_relaxed);
  entry.duration_ns.store(duration_ns, std::memory_order_relaxed);
  entry.after.store(after, std::memory_order_relaxed);
  entry.sms.store(sms, std::memory_order_relaxed);
  entry.finish.store(finish_tag(number), std::memory_order_relaxed);
  queue_->submitted.store(number, std::memory_order_release);
  std::atomic<uint64_t> &users = shared_->users[slot_ / 64];
  const uint64_t bit = uint64_t{1} << slot_ % 64;
  if ((users.load(std::memory_order_relaxed) & bit) == 0) users.fetch_or(bit, std::memory_order_release);
  return number;
}

void Engine::wait_for_room() {
  uint64_t last = queue_->submitted.load(std::memory_order_relaxed);
  wait_for(last + 1 - std::min<uint64_t>(device_->facts.queue_depth, last + 1));
}

bool Engine::ended_slowly(uint64_t number) {
  if (!owns_queue()) return true;
  uint64_t now = now_ns();
  if (now < not_before_ns_.load(std::memory_order_relaxed)) return false;
  advance_to(now);
  return number <= queue_->done.load(std::memory_order_acquire);
}

void Engine::wait_for(uint64_t number) {
  while (!ended(number)) {
    uint64_t until = 0;
    bool alone = true;
    if (clock_->mode != ClockMode::kManual) {
      std::lock_guard<std::mutex> guard(mutex_);
      load();
      refresh_runners(*shared_, copy_.get());
      alone = copy_->runner_count <= 1;
      until = clock_->mode == ClockMode::kReal
                  ? foresee_end(*device_, copy_.get(), slot_, number, now_ns() + kForesightNs)
                  : foresee_end(*device_, copy_.get(), kAnySlot, 0, UINT64_MAX);
    }
    if (clock_->mode != ClockMode::kAuto) {
      sleep_on_clock(clock_, clock_->mode == ClockMode::kReal ? until : UINT64_MAX);
      continue;
    }
    if (!alone) usleep(kCourtesyUs);
    // Never: what we wait for has ended in between.
    if (until != UINT64_MAX) advance_clock_to(clock_, until);
  }
}

void Engine::wait_until(uint64_t ns) {
  while (now_ns() < ns) {
    if (clock_->mode == ClockMode::kAuto)
      advance_clock_to(clock_, ns);
    else
      sleep_on_clock(clock_, ns);
  }
}

uint64_t Engine::ended_at(uint64_t number) const {
  uint64_t since_epoch =
      queue_->entries[number % kQueueEntries].finish.load(std::memory_order_acquire) ^ finish_tag(number);
  return since_epoch >> 52 == 0 && since_epoch != 0 ? shared_->epoch_ns + since_epoch : 0;
}

// Leaves the published schedule in `copy_`, and says which it is.
uint64_t Engine::load() {
  for (;;) {
    uint64_t from = shared_->published.load(std::memory_order_acquire);
    const std::atomic<uint64_t> *words = shared_->buffers[from >> 1 & 0x7fff][from & 1];
    auto *copy = reinterpret_cast<uint64_t *>(copy_.get());
    copy_->finished_count = copy_->runner_count = 0;
    // Pairs with the stores in publish(): whoever has seen words of a later schedule sees that a later one is published.
    for_used_words(*copy_, [&](unsigned first, unsigned count) {
      for (unsigned i = first; i < first + count; i++) copy[i] = words[i].load(std::memory_order_acquire);
    });
    if (shared_->published.load(std::memory_order_relaxed) == from) return from;
  }
}

bool Engine::publish(uint64_t from) {
  const bool mine = (from >> 1 & 0x7fff) == slot_;
  const uint64_t half = mine ? ~from & 1 : 0;
  std::atomic<uint64_t> *words = shared_->buffers[slot_][half];
  const auto *copy = reinterpret_cast<const uint64_t *>(copy_.get());
  for_used_words(*copy_, [&](unsigned first, unsigned count) {
    for (unsigned i = first; i < first + count; i++) words[i].store(copy[i], std::memory_order_release);
  });
  uint64_t to = ((from >> 16) + 1) << 16 | uint64_t{slot_} << 1 | half;
  if (!shared_->published.compare_exchange_strong(from, to, std::memory_order_acq_rel)) return false;
  apply_schedule(shared_, *copy_);
  return true;
}

void Engine::advance_to(uint64_t ns, bool always_publish) {
  std::lock_guard<std::mutex> guard(mutex_);
  for (;;) {
    uint64_t from = load();
    // Whoever published it may have been stopped before he told the queues.
    apply_schedule(shared_, *copy_);
    refresh_runners(*shared_, copy_.get());
    run_schedule(*device_, copy_.get(), ns);
    // Time that has merely passed need not be published: it can be computed again.
    if (copy_->finished_count == 0 && copy_->ended_window == 0 && !always_publish) break;
    if (!publish(from)) continue;
    if (copy_->now_ns >= ns) break;
  }
  note_earliest_end();
}

// The next kernel of ours does not end before it has run, however soon others let go of the device; those behind it do not
// count as ended before it has.
void Engine::note_earliest_end() {
  uint64_t earliest = 0;
  for (uint64_t i = 0; i < copy_->runner_count; i++) {
    const Runner &runner = copy_->runners[i];
    if (runner.slot == slot_ && runner.running_count != 0) earliest = copy_->now_ns + runner.running[0].remaining_ns;
  }
  not_before_ns_.store(earliest, std::memory_order_relaxed);
}

uint64_t Engine::busy_ns(unsigned slot, uint64_t *at_ns) {
  std::lock_guard<std::mutex> guard(mutex_);
  const LaunchQueue &queue = shared_->queues[slot];
  for (;;) {
    uint64_t busy = queue.busy_ns.load(std::memory_order_relaxed);
    uint64_t now = now_ns();
    uint64_t from = load();
    refresh_runners(*shared_, copy_.get());
    while (copy_->now_ns < now) run_schedule(*device_, copy_.get(), now);
    for (uint64_t i = 0; i < copy_->runner_count; i++)
      if (copy_->runners[i].slot == slot) busy = copy_->runners[i].busy_ns;
    if (shared_->published.load(std::memory_order_acquire) != from) continue;
    if (at_ns != nullptr) *at_ns = now;
    return busy - queue.busy_base_ns.load(std::memory_order_relaxed);
  }
}

void Engine::admit(unsigned slot, uint64_t generation) {
  LaunchQueue &queue = shared_->queues[slot];
  queue.busy_base_ns.store(queue.busy_ns.load());
  for (auto &window : queue.windows) window.store(0, std::memory_order_relaxed);
  // Far above all that the last owner can have launched.
  queue.done.store(generation << 32, std::memory_order_relaxed);
  queue.submitted.store(generation << 32, std::memory_order_relaxed);
  queue.generation.store(generation, std::memory_order_release);
}

void Engine::dismiss(unsigned slot) {
  if (shared_->queues[slot].submitted.load() << 32 == 0) {
    shared_->queues[slot].generation.store(0, std::memory_order_release);
    return;
  }
  // What it had of the device until now is accounted for; then it leaves the schedule. Whoever still computes with it
  // fails to publish.
  advance_to(now_ns(), true);
  shared_->queues[slot].generation.store(0, std::memory_order_release);
  shared_->users[slot / 64].fetch_and(~(uint64_t{1} << slot % 64), std::memory_order_release);
  advance_to(now_ns(), true);
}

}  // namespace simgpu
