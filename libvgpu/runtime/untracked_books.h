// What this process is charged for untracked memory, by device. Its writers are corrections by a look (correction.cc), calls that
// are being settled (untracked_charge.cc), and contexts and data that went (untracked_memory.cc); each holds the mutex.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/mutex.h"
#include "region/region.h"

namespace vgpu::runtime {

// The least that a module takes: a block of the driver's.
inline constexpr std::uint64_t kLeastModule = std::uint64_t{2} << 20;
// What modules may have taken that nobody has looked at: so much together at least; and each, while none was measured.
inline constexpr std::uint64_t kUnlookedBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kUnknownModule = std::uint64_t{16} << 20;

// Nothing here is held while NVML is asked. `generation` tells whether an answer still belongs to what it was asked for.
struct UntrackedBooks {
  Mutex mutex;
  // In bytes.
  std::uint64_t charged[region::kKinds] VGPU_GUARDED_BY(mutex);
  std::uint64_t in_progress VGPU_GUARDED_BY(mutex);      // of `charged`: reserved for calls that have not returned
  std::uint64_t guessed VGPU_GUARDED_BY(mutex);          // of the contexts' charge: not measured yet
  std::uint64_t guessed_modules VGPU_GUARDED_BY(mutex);  // of the modules' charge: the same
  // Of the contexts' charge, where other ranks can correct it: what unlooked modules may have taken beyond their own.
  std::uint64_t slack VGPU_GUARDED_BY(mutex);
  std::uint64_t last_module VGPU_GUARDED_BY(mutex);
  std::uint64_t largest_module VGPU_GUARDED_BY(mutex);  // 0: none was measured
  std::uint32_t generation VGPU_GUARDED_BY(mutex);
  unsigned reserving VGPU_GUARDED_BY(mutex);  // see UntrackedCharge::Reserving
  bool unsettled VGPU_GUARDED_BY(mutex);
  unsigned unlooked_modules VGPU_GUARDED_BY(mutex);  // loaded since the last look
  bool never VGPU_GUARDED_BY(mutex);                 // NVML cannot tell, as far as we know
  bool waited VGPU_GUARDED_BY(mutex);                // for NVML to show what is guessed, in vain

  std::uint64_t total() const VGPU_REQUIRES(mutex) {
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : charged) sum += bytes;
    return sum;
  }
  std::uint64_t &charge_of(region::Kind kind) VGPU_REQUIRES(mutex) { return charged[static_cast<unsigned>(kind)]; }
  // What so many modules may have taken.
  std::uint64_t exposure(unsigned modules) const VGPU_REQUIRES(mutex) {
    const std::uint64_t each = largest_module != 0 ? std::max(largest_module, kLeastModule) : kUnknownModule;
    return modules != 0 ? std::max(modules * each, kUnlookedBytes) : 0;
  }
};

struct Untracked {
  UntrackedBooks devices[region::kMaxDevices];
  std::atomic<std::uint64_t> interval_ms;  // what settle_due() then waits; by whoever moved settle_due_ms
};

// Null: there is no memory for them.
Untracked *untracked_books();

// settle_due() looks soon, and then ever less. What launches take is to be seen within a second, by this rank or by the one
// that looks for all of them, which takes turns as long.
inline constexpr std::uint64_t kFirstIntervalMs = 20;
inline constexpr std::uint64_t kLastIntervalMs = 500;
void measure_soon(Untracked &state);

// Another rank may have corrected what this one is charged for its contexts, while it was at rest.
void adopt_correction(unsigned dev, UntrackedBooks &books) VGPU_REQUIRES(books.mutex);

// Whether memory was ever there: what was only reserved or guessed is in no peak.
enum class Was : std::uint8_t { there, never_there };

// How much of it was there to give back.
std::uint64_t give_back(unsigned dev, UntrackedBooks &books, region::Kind kind, std::uint64_t bytes,
                        Was was = Was::there) VGPU_REQUIRES(books.mutex);
// `own`: what was reserved for the call that is being settled.
void shrink(unsigned dev, UntrackedBooks &books, region::Kind first, std::uint64_t bytes, std::uint64_t own)
    VGPU_REQUIRES(books.mutex);

void forget_unlooked(UntrackedBooks &books) VGPU_REQUIRES(books.mutex);
void drop_slack(unsigned dev, UntrackedBooks &books) VGPU_REQUIRES(books.mutex);
// What of the slack modules have really taken is theirs.
void settle_slack(unsigned dev, UntrackedBooks &books, std::uint64_t target) VGPU_REQUIRES(books.mutex);

}  // namespace vgpu::runtime
