// How a device's time is shared out: to one process at a time; one that wants the device while another has it gets it when
// that one's slice has run out or it has nothing more to run. Within a process, kernels start in the order of their launch,
// but for those that wait for others, and run beside each other if the description allows it and there are SMs for all.
#include <algorithm>

#include "simgpu/node/engine.h"

namespace simgpu {
namespace {

constexpr uint64_t kNever = UINT64_MAX;

// The runner's next kernel. More than a queue can hold is a queue that has changed hands and is no longer this runner's, or
// one that others have brought further: it can become so at any time.
const LaunchEntry *next_kernel(const DeviceSchedule &shared, const Runner &runner) {
  const LaunchQueue &queue = shared.queues[runner.slot];
  uint64_t waiting = queue.submitted.load(std::memory_order_acquire) - runner.done;
  return waiting - 1 < kQueueEntries ? &queue.entries[(runner.done + 1) % kQueueEntries] : nullptr;
}

// When the runner can go on. If nothing of it runs, the next kernel waits for none.
uint64_t ready_at(const DeviceSchedule &shared, const Runner &runner) {
  if (runner.running_count != 0) return 0;
  const LaunchEntry *kernel = next_kernel(shared, runner);
  return kernel != nullptr ? kernel->arrival_ns.load(std::memory_order_relaxed) : kNever;
}

// Whose turn it is, null when nobody is ready.
Runner *choose(const DeviceState &device, Schedule *schedule) {
  const uint64_t count = schedule->runner_count;
  if (count == 0) return nullptr;
  if (schedule->turn >= count) {
    schedule->turn = 0;
    schedule->slice_ns = device.facts.slice_ns;
  }
  Runner *present = &schedule->runners[schedule->turn];
  const bool can_stay = ready_at(device.schedule, *present) <= schedule->now_ns;
  if (can_stay && schedule->slice_ns > 0) return present;
  for (uint64_t i = 1; i < count; i++) {
    uint64_t index = (schedule->turn + i) % count;
    if (ready_at(device.schedule, schedule->runners[index]) > schedule->now_ns) continue;
    schedule->turn = index;
    schedule->slice_ns = device.facts.slice_ns;
    return &schedule->runners[index];
  }
  return can_stay ? present : nullptr;
}

// When somebody who is not ready yet will be.
uint64_t next_arrival(const DeviceSchedule &shared, const Schedule &schedule, const Runner *except) {
  uint64_t first = kNever;
  for (uint64_t i = 0; i < schedule.runner_count; i++)
    if (&schedule.runners[i] != except) first = std::min(first, ready_at(shared, schedule.runners[i]));
  return first;
}

void end_window(uint64_t epoch_ns, Schedule *schedule) {
  schedule->ended_window = (schedule->now_ns - epoch_ns) / kWindowNs;
  schedule->ended_window_ns = schedule->gone_window_ns;
  schedule->gone_window_ns = 0;
  for (uint64_t i = 0; i < schedule->runner_count; i++) {
    Runner &runner = schedule->runners[i];
    schedule->ended_window_ns += runner.window_ns;
    runner.last_window_ns = runner.window_ns;
    runner.window_ns = 0;
  }
}

bool window_is_empty(const Schedule &schedule) {
  return schedule.gone_window_ns == 0 && std::all_of(schedule.runners, schedule.runners + schedule.runner_count,
                                                     [](const Runner &runner) { return runner.window_ns == 0; });
}

// Starts what can run beside what runs. Returns when the next one arrives that is not there yet.
uint64_t start_kernels(const DeviceState &device, Runner *runner, uint64_t now_ns) {
  const LaunchQueue &queue = device.schedule.queues[runner->slot];
  const uint64_t all_sms = device.facts.sm_count;
  auto sms_of = [&](uint64_t number) {
    return std::min(all_sms, queue.entries[number % kQueueEntries].sms.load(std::memory_order_relaxed));
  };
  uint64_t busy_sms = 0;
  for (uint64_t i = 0; i < runner->running_count; i++)
    if (runner->running[i].remaining_ns != 0) busy_sms += sms_of(runner->running[i].number);
  // Further ahead than this it does not look for one that waits for none of those that run.
  constexpr uint64_t kLookAhead = 4 * kMaxRunning;
  const uint64_t waiting = queue.submitted.load(std::memory_order_acquire) - runner->done;
  const uint64_t last = waiting - 1 < kQueueEntries ? runner->done + std::min(waiting, kLookAhead) : runner->done;
  uint64_t place = 0;  // in the list of those that run
  for (uint64_t number = runner->done + 1; number <= last && runner->running_count < device.facts.concurrent_kernels;
       number++) {
    while (place < runner->running_count && runner->running[place].number < number) place++;
    if (place < runner->running_count && runner->running[place].number == number) continue;
    const LaunchEntry &kernel = queue.entries[number % kQueueEntries];
    const uint64_t arrival = kernel.arrival_ns.load(std::memory_order_relaxed);
    if (arrival > now_ns) return arrival;
    if (kernel.after.load(std::memory_order_relaxed) > runner->done) continue;
    if (busy_sms + sms_of(number) > all_sms) break;  // nor does what is behind it overtake it
    busy_sms += sms_of(number);
    std::copy_backward(runner->running + place, runner->running + runner->running_count,
                       runner->running + runner->running_count + 1);
    runner->running[place] = {number, kernel.duration_ns.load(std::memory_order_relaxed)};
    runner->running_count++;
  }
  return kNever;
}

// How long until the first of those that run ends; 0 if none runs.
uint64_t first_end(const Runner &runner) {
  uint64_t first = kNever;
  for (uint64_t i = 0; i < runner.running_count; i++)
    if (runner.running[i].remaining_ns != 0) first = std::min(first, runner.running[i].remaining_ns);
  return first != kNever ? first : 0;
}

void run(Runner *runner, uint64_t ns, Schedule *schedule) {
  runner->busy_ns += ns;
  runner->window_ns += ns;
  schedule->slice_ns -= std::min(schedule->slice_ns, ns);
  schedule->now_ns += ns;
  const uint64_t first = schedule->finished_count;
  for (uint64_t i = 0; i < runner->running_count; i++) {
    Running &running = runner->running[i];
    if (running.remaining_ns == 0) continue;
    running.remaining_ns -= ns;
    if (running.remaining_ns == 0)
      schedule->finished[schedule->finished_count++] = {runner->slot, running.number, schedule->now_ns, 0};
  }
  uint64_t ended = 0;
  while (ended < runner->running_count && runner->running[ended].number == runner->done + 1 &&
         runner->running[ended].remaining_ns == 0) {
    runner->done++;
    ended++;
  }
  std::copy(runner->running + ended, runner->running + runner->running_count, runner->running);
  runner->running_count -= ended;
  for (uint64_t i = first; i < schedule->finished_count; i++) schedule->finished[i].done = runner->done;
}

void raise_to(std::atomic<uint64_t> *word, uint64_t value) {
  uint64_t seen = word->load(std::memory_order_relaxed);
  while (seen < value && !word->compare_exchange_weak(seen, value, std::memory_order_release)) continue;
}

// A later window in the same place stays.
void note_window(std::atomic<uint64_t> *windows, uint64_t window, uint64_t busy_ns) {
  if (busy_ns != 0) raise_to(&windows[window % kWindows], window << 32 | busy_ns);
}

}  // namespace

void refresh_runners(const DeviceSchedule &shared, Schedule *schedule) {
  for (uint64_t i = 0; i < schedule->runner_count;) {
    Runner &runner = schedule->runners[i];
    if (shared.queues[runner.slot].generation.load(std::memory_order_acquire) == runner.generation) {
      i++;
      continue;
    }
    schedule->gone_window_ns += runner.window_ns;
    std::copy(&runner + 1, schedule->runners + schedule->runner_count, &runner);
    schedule->runner_count--;
    if (schedule->turn == i) schedule->slice_ns = 0;
    if (schedule->turn > i) schedule->turn--;
  }
  for (unsigned word = 0; word < kMaxProcesses / 64; word++) {
    for (uint64_t bits = shared.users[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) {
      unsigned slot = word * 64 + static_cast<unsigned>(__builtin_ctzll(bits));
      const LaunchQueue &queue = shared.queues[slot];
      uint64_t generation = queue.generation.load(std::memory_order_acquire);
      bool known = std::any_of(schedule->runners, schedule->runners + schedule->runner_count,
                               [slot](const Runner &runner) { return runner.slot == slot; });
      if (known || generation == 0) continue;
      schedule->runners[schedule->runner_count++] = {slot, generation, queue.done.load(std::memory_order_acquire),
                                                     0,    {},         queue.busy_ns.load(std::memory_order_relaxed),
                                                     0,    0};
    }
  }
}

void run_schedule(const DeviceState &device, Schedule *schedule, uint64_t to_ns) {
  const DeviceSchedule &shared = device.schedule;
  schedule->finished_count = 0;
  schedule->ended_window = 0;
  while (schedule->now_ns < to_ns && schedule->finished_count <= kMaxFinished - kMaxRunning &&
         schedule->ended_window == 0) {
    uint64_t window_end = shared.epoch_ns + ((schedule->now_ns - shared.epoch_ns) / kWindowNs + 1) * kWindowNs;
    Runner *runner = choose(device, schedule);
    if (runner == nullptr) {
      uint64_t until = std::min(to_ns, next_arrival(shared, *schedule, nullptr));
      if (!window_is_empty(*schedule)) until = std::min(until, window_end);
      schedule->now_ns = until;
      if (until == window_end) end_window(shared.epoch_ns, schedule);
      continue;
    }
    const uint64_t next_start = start_kernels(device, runner, schedule->now_ns);
    const uint64_t longest = first_end(*runner);
    // Others have gone on, and its owner has queued more since: what is computed here will not be published.
    if (longest == 0) continue;
    uint64_t until = std::min({to_ns, window_end, next_start});
    // Who has used up his slice goes on as long as nobody else wants the device.
    if (schedule->slice_ns > 0)
      until = std::min(until, schedule->now_ns + schedule->slice_ns);
    else
      until = std::min(until, next_arrival(shared, *schedule, runner));
    run(runner, std::min(longest, until - schedule->now_ns), schedule);
    if (schedule->now_ns == window_end) end_window(shared.epoch_ns, schedule);
  }
}

uint64_t foresee_end(const DeviceState &device, Schedule *schedule, unsigned slot, uint64_t number, uint64_t to_ns) {
  while (schedule->now_ns < to_ns) {
    run_schedule(device, schedule, to_ns);
    for (uint64_t i = 0; i < schedule->finished_count; i++) {
      const Finished &finished = schedule->finished[i];
      if (slot == kAnySlot || (finished.slot == slot && finished.done >= number)) return finished.at_ns;
    }
  }
  return to_ns;
}

void apply_schedule(DeviceSchedule *shared, const Schedule &schedule) {
  for (uint64_t i = 0; i < schedule.finished_count; i++) {
    const Finished &finished = schedule.finished[i];
    LaunchQueue &queue = shared->queues[finished.slot];
    uint64_t unknown = finish_tag(finished.number);
    queue.entries[finished.number % kQueueEntries].finish.compare_exchange_strong(
        unknown, unknown | (finished.at_ns - shared->epoch_ns), std::memory_order_relaxed);
    raise_to(&queue.done, finished.done);
  }
  for (uint64_t i = 0; i < schedule.runner_count; i++) {
    const Runner &runner = schedule.runners[i];
    raise_to(&shared->queues[runner.slot].busy_ns, runner.busy_ns);
    if (schedule.ended_window != 0)
      note_window(shared->queues[runner.slot].windows, schedule.ended_window, runner.last_window_ns);
  }
  if (schedule.ended_window != 0) note_window(shared->windows, schedule.ended_window, schedule.ended_window_ns);
}

}  // namespace simgpu
