// Untracked memory, which no call shows: contexts, modules, and what the driver rounds up.
//
// Before a call that makes some, what it is likely to take is reserved. Afterwards NVML says what the process really holds
// (look.h); what of it no allocation accounts for is untracked, and the charge for that is corrected: if it does not fit
// into the limit, the caller undoes the call. What NVML does not show yet stays charged as it was reserved, and is settled
// later: from an allocation, a synchronisation, a question for free memory, or by another rank.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "driver/cuda_api.h"
#include "look.h"
#include "region/region.h"

namespace vgpu::runtime {

enum class Patience : std::uint8_t {
  none,
  bounded,  // waits for NVML, 500 ms at most
};

class UntrackedCharge {
 public:
  // Reserves what a module is likely to take. If that is refused, it has been logged.
  UntrackedCharge(unsigned dev, region::Kind kind);
  // ... or what is known to be wanted.
  UntrackedCharge(unsigned dev, region::Kind kind, std::uint64_t expected);
  UntrackedCharge(const UntrackedCharge &) = delete;
  UntrackedCharge &operator=(const UntrackedCharge &) = delete;

  bool granted() const { return granted_; }
  // The call failed, or was undone.
  void cancel();
  // The call succeeded. False: what it took does not fit; undo it, then cancel().
  bool settle() { return settle(Patience::none) != Settled::over; }

 protected:
  enum class Settled : std::uint8_t { yes, over, unknown };  // unknown: only with patience
  Settled settle(Patience patience);

  struct ByHand {};
  UntrackedCharge(unsigned dev, region::Kind kind, ByHand) : dev_(dev), kind_(kind), granted_(false), reserved_(0) {}

  // From Reserving on, a charge of the region may be none of this process's books yet.
  class Reserving {
   public:
    explicit Reserving(unsigned dev);
    ~Reserving();
    Reserving(const Reserving &) = delete;
    Reserving &operator=(const Reserving &) = delete;

   private:
    unsigned dev_;
  };
  void reserved(std::uint64_t bytes);

  bool is_measured() const { return measured_; }
  std::uint64_t taken() const { return taken_; }  // after settle()
  unsigned dev() const { return dev_; }

 private:
  bool reserve_least();

  unsigned dev_;
  region::Kind kind_;
  bool granted_;
  bool measured_ = false;
  std::uint64_t reserved_;
  std::uint64_t taken_ = 0;
};

// A context is gone for which so much was charged; its modules went with it. settle_untracked() follows.
void context_gone(unsigned dev, std::uint64_t bytes);
// There is a context of which no call told: whoever made it, it is charged.
void charge_unseen_context(unsigned dev, CUcontext context);

// After a call that gave untracked memory back.
void settle_untracked(unsigned dev, region::Kind kind);
// After a call that may have made some, too cheap itself to be measured.
void note_untracked_growth();
// Data that was charged, is no longer recorded, and may be gone or not: it counts as untracked memory until it is measured.
void untrack_data(unsigned dev, std::uint64_t bytes);
// Before somebody is refused: measures what may be gone. False: nothing was given back.
bool settle_before_refusing(unsigned dev);
// Some device's untracked memory is not known yet.
extern std::atomic<bool> untracked_unsettled;
// Measures what is due: soon after a context was made, and twice a second.
void settle_due();
// When that is; of coarse_ms().
extern std::atomic<std::uint64_t> settle_due_ms;

// Before anything is charged: what launches took in the meantime counts.
inline void settle_untracked_when_due() {
  if (__builtin_expect(coarse_ms() >= settle_due_ms.load(std::memory_order_relaxed), false)) settle_due();
}

[[gnu::tls_model("initial-exec")]] extern thread_local constinit unsigned calls_since_clock_read;
inline constexpr unsigned kCallsPerClockRead = 8;

// Before a piece of a block, which is charged already if it is open, or ahead if it is not: then even the clock is dear.
inline void settle_untracked_now_and_then() {
  const bool due =
      untracked_unsettled.load(std::memory_order_relaxed) || ++calls_since_clock_read % kCallsPerClockRead == 0;
  if (__builtin_expect(due, false)) settle_untracked_when_due();
}
// One was charged ahead, so the next call looks at the clock.
inline void settle_untracked_next_time() { calls_since_clock_read = kCallsPerClockRead - 1; }

// Before somebody is told what is free: a look, unless there was one lately and nothing has happened since.
void look_for_reader(unsigned dev);
inline void settle_for_reader(unsigned dev) {
  const bool due = untracked_unsettled.load(std::memory_order_relaxed) ||
                   coarse_ms() >= reader_due_ms[dev].load(std::memory_order_relaxed);
  if (__builtin_expect(due, false)) look_for_reader(dev);
}

// Untracked data waits for a synchronisation, because NVML cannot tell when it goes.
extern std::atomic<bool> untracked_data_waits;
void give_back_what_was_freed();

// After a synchronisation: the device has done what it was told.
inline void settle_after_synchronisation() {
  if (__builtin_expect(untracked_data_waits.load(std::memory_order_relaxed), false)) give_back_what_was_freed();
  settle_due();
}

}  // namespace vgpu::runtime
