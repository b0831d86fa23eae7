// One look at NVML: what this process holds on a device, beside what its books say.
//
// NVML may be slow, late, silent or wrong. So it is asked with no mutex held, its answer counts only for books that did not
// change meanwhile, and what it does not say is not known rather than nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocations.h"

namespace vgpu::runtime {

// While one lives, the device may hold less than the table of allocations says, because the driver frees before we do: no
// look may judge by what it then sees, neither ours nor another rank's.
class BooksLag {
 public:
  explicit BooksLag(int dev);  // kNotInJob: does nothing
  ~BooksLag();
  BooksLag(const BooksLag &) = delete;
  BooksLag &operator=(const BooksLag &) = delete;

 private:
  int dev_;
};

enum class Sight : std::uint8_t {
  known,
  later,  // NVML does not show us yet, or another thread is between the driver and our books
  never,  // NVML cannot tell
};

struct Look {
  Sight sight = Sight::later;
  // Only if known: what the process holds beyond its allocations; a range where some of these may be elsewhere.
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  std::uint64_t seen = 0;  // bytes, by NVML; a context and its like included
  // The books that the answer belongs to.
  Recorded known;
  std::uint64_t held = 0;  // bytes, without idle blocks
};
Look look_at(unsigned dev);

// What this process is charged for on a device, without idle blocks: those are the driver's to open yet.
std::uint64_t held_without_idle(unsigned dev);

// When a look is too old for somebody who asks what is free; of coarse_ms().
extern std::atomic<std::uint64_t> reader_due_ms[region::kMaxDevices];

// The cost of looking.
bool looks_are_cheap(unsigned dev);      // so cheap that a module load may have one
bool looks_are_suspended(unsigned dev);  // NVML hung: for a while nobody waits for it again
std::uint64_t ms_since_look(unsigned dev);
std::uint64_t look_pause_ms(unsigned dev);  // between looks, so that they take a tenth of a program's time at most

}  // namespace vgpu::runtime
