// What a device runs, and when: the launches that each process has queued, and one schedule that says how far they are.
//
// Nobody executes the queues. The schedule is a function of what was queued when, so whoever wants to know advances it from
// where it was left to the present time, and publishes the result by one compare-and-swap. A client that is stopped or
// killed at any instruction blocks nobody; its kernels go on because others, when they look, find that they have.
//
// All is words. Of a buffer only its owner's process writes, and never while it is the published one; a reader that may
// have read a buffer in rewriting sees it by the published word, which never has the same value twice.
#pragma once

#include <atomic>
#include <cstdint>

namespace simgpu {

constexpr unsigned kMaxProcesses = 1024;
constexpr unsigned kQueueEntries = 1024;
constexpr unsigned kWindows = 64;                // how far back utilisation is known
constexpr uint64_t kWindowNs = 1000000000u / 6;  // NVML's figures are refreshed 6 times a second
constexpr unsigned kMaxFinished = 64;            // kernels that end in one published step
constexpr unsigned kMaxRunning = 8;              // kernels of one process that run at the same time

// The finish word has the ordinal of the ring's round in its high bits, so that who is late cannot write into a later round.
struct LaunchEntry {
  std::atomic<uint64_t> arrival_ns;
  std::atomic<uint64_t> duration_ns;
  std::atomic<uint64_t> after;  // it starts when all kernels up to this one have ended
  std::atomic<uint64_t> sms;    // how many it fills
  std::atomic<uint64_t> finish;
};

// One process's launches on one device. Launches are numbered; a slot's next owner goes on far above the last one, so that
// `done` and `busy_ns` only ever grow, whoever writes them how late.
struct alignas(64) LaunchQueue {
  std::atomic<uint64_t> generation;             // of the process that owns it; 0: nobody
  std::atomic<uint64_t> busy_base_ns;           // busy_ns when it came
  alignas(64) std::atomic<uint64_t> submitted;  // the last launch; written by the owner
  alignas(64) std::atomic<uint64_t> done;       // the last launch that has ended
  std::atomic<uint64_t> busy_ns;
  std::atomic<uint64_t> windows[kWindows];  // number of the window in the high half, busy ns in it in the low
  LaunchEntry entries[kQueueEntries];
};

// A kernel that has started. One that has ended stays, with nothing remaining, until all before it have.
struct Running {
  uint64_t number;
  uint64_t remaining_ns;
};

// Where one process's queue is.
struct Runner {
  uint64_t slot, generation;
  uint64_t done;           // all up to here have ended; the next one is the first of those that run
  uint64_t running_count;  // by number
  Running running[kMaxRunning];
  uint64_t busy_ns;
  uint64_t window_ns, last_window_ns;  // busy in the present window and in the one that has just ended
};

struct Finished {
  uint64_t slot, number, at_ns;
  uint64_t done;  // the runner's, then
};

struct Schedule {
  uint64_t now_ns;           // everything up to here has been decided
  uint64_t turn;             // index of the runner that has the device
  uint64_t slice_ns;         // what is left of its slice
  uint64_t gone_window_ns;   // busy in the present window, of processes that have gone
  uint64_t ended_window;     // number of the window that ended with this step, 0 for none
  uint64_t ended_window_ns;  // busy in it, of all
  uint64_t finished_count;
  uint64_t runner_count;
  Finished finished[kMaxFinished];  // what ended with this step
  Runner runners[kMaxProcesses];
};
constexpr unsigned kScheduleWords = sizeof(Schedule) / sizeof(uint64_t);
static_assert(sizeof(Schedule) % sizeof(uint64_t) == 0);

struct DeviceSchedule {
  uint64_t epoch_ns;                                // when the device came to be
  std::atomic<uint64_t> published;                  // ordinal << 16 | slot << 1 | which of the slot's two buffers
  std::atomic<uint64_t> users[kMaxProcesses / 64];  // who has ever launched something that takes time
  std::atomic<uint64_t> windows[kWindows];          // as in LaunchQueue, of all processes together
  LaunchQueue queues[kMaxProcesses];
  std::atomic<uint64_t> buffers[kMaxProcesses][2][kScheduleWords];
};

}  // namespace simgpu
