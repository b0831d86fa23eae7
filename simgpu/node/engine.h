// One process's hold on a device's schedule: launches kernels, asks how far they are, waits for them.
#pragma once

#include <memory>
#include <mutex>

#include "simgpu/node/clock.h"
#include "simgpu/node/layout.h"

namespace simgpu {

class Engine {
 public:
  void attach(DeviceState *device, unsigned slot, ClockPage *clock);

  // Queues a kernel and returns its number, 0 when the queue is full. Numbers grow. For one thread at a time.
  // It starts when the kernels up to `after` have ended, and fills so many SMs.
  uint64_t launch(uint64_t duration_ns, uint64_t after, uint64_t sms);
  // Returns when there is room for another launch.
  void wait_for_room();
  // Whether the kernel has ended, and all that were launched before it. Of number 0, which is none, and when this process is no longer the node's: yes.
  bool ended(uint64_t number) { return number <= queue_->done.load(std::memory_order_acquire) || ended_slowly(number); }
  void wait_for(uint64_t number);
  // When an ended kernel ended; 0 when more than a queue's length of others have been launched since.
  uint64_t ended_at(uint64_t number) const;
  // The oldest launch whose end the next launch makes unknowable, 0 for none.
  uint64_t forgets() const {
    uint64_t next = queue_->submitted.load(std::memory_order_relaxed) + 1;
    return next - first_ > kQueueEntries ? next - kQueueEntries : 0;
  }
  uint64_t done() const { return queue_->done.load(std::memory_order_acquire); }
  uint64_t now_ns() const { return clock_->now_ns(); }
  bool in_real_time() const { return clock_->mode == ClockMode::kReal; }
  void wait_until(uint64_t ns);
  // When this process can see that an ended kernel has; 0 when that is long ago.
  uint64_t visible_at(uint64_t number) const {
    const uint64_t at = device_->facts.event_lag_ns != 0 ? ended_at(number) : 0;
    return at != 0 ? at + device_->facts.event_lag_ns : 0;
  }

  // Brings the schedule up to date, and everything that is derived from it.
  void advance() { advance_to(now_ns()); }
  // How long a slot's process has had the device, up to now (`at_ns`) and to the nanosecond.
  uint64_t busy_ns(unsigned slot, uint64_t *at_ns = nullptr);

  // For the kernel process: a slot gets an owner, or loses him with all he has queued.
  void admit(unsigned slot, uint64_t generation);
  void dismiss(unsigned slot);

 private:
  bool ended_slowly(uint64_t number);
  void advance_to(uint64_t ns, bool always_publish = false);
  uint64_t load();
  bool publish(uint64_t from);
  void note_earliest_end();
  bool owns_queue() const { return queue_->generation.load(std::memory_order_acquire) == generation_; }

  DeviceState *device_ = nullptr;
  DeviceSchedule *shared_ = nullptr;
  LaunchQueue *queue_ = nullptr;
  ClockPage *clock_ = nullptr;
  unsigned slot_ = 0;
  uint64_t generation_ = 0;
  uint64_t first_ = 0;  // launches are numbered from the one after this
  std::mutex mutex_;    // guards `copy_` and this slot's buffers
  std::unique_ptr<Schedule> copy_;
  std::atomic<uint64_t> not_before_ns_{0};  // nothing of ours ends before this
};

// Steps of the schedule, in engine_steps.cc; tests call them directly.
// Takes in processes that have begun to launch, and drops those that have gone.
void refresh_runners(const DeviceSchedule &shared, Schedule *schedule);
// Runs until `to_ns`, or until enough has happened that it should be published first.
void run_schedule(const DeviceState &device, Schedule *schedule, uint64_t to_ns);
// When the slot's launch (of kAnySlot: the next launch of anybody) will end if nobody launches anything else, or `to_ns` if
// that is later. Changes the schedule.
constexpr unsigned kAnySlot = kMaxProcesses;
uint64_t foresee_end(const DeviceState &device, Schedule *schedule, unsigned slot, uint64_t number, uint64_t to_ns);
// Tells the queues what the schedule has decided. May be done again, and late.
void apply_schedule(DeviceSchedule *shared, const Schedule &schedule);

inline uint64_t finish_tag(uint64_t number) { return (number / kQueueEntries) << 52; }

}  // namespace simgpu
