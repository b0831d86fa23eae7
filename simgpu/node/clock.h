// The clock of a node's devices, for whoever wants to read it: one page, the file `clock` in the node's directory. By
// default devices live in real time, CLOCK_MONOTONIC; else in a time of their own, which stands still until it is advanced.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace simgpu {

constexpr uint32_t kClockMagic = 0x434c4b31;

enum class ClockMode : uint32_t {
  kReal,    // CLOCK_MONOTONIC
  kManual,  // `simgpu-ctl clock advance`
  kAuto,    // the same; besides, a thread that waits for a device moves the clock to what happens next there
};

struct ClockPage {
  uint32_t magic;
  ClockMode mode;
  std::atomic<uint32_t> changes;  // a futex: whoever moves the clock counts it up and wakes
  uint32_t reserved;
  std::atomic<uint64_t> virtual_ns;

  uint64_t now_ns() const {
    if (mode != ClockMode::kReal) return virtual_ns.load(std::memory_order_acquire);
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
  }
};

// Moves a virtual clock forward, never back, and wakes those who wait for it.
void advance_clock_to(ClockPage *clock, uint64_t ns);
// Returns when the clock shows `until_ns`, or a little earlier, at the latest after 5 ms of real time: what one waits for
// may happen sooner than expected.
void sleep_on_clock(ClockPage *clock, uint64_t until_ns);

}  // namespace simgpu
