// Memory that the driver keeps in stock: what a stream-ordered pool has reserved, what the graphs of a device share.
//
// The driver says how large a stock is, so that is what is charged, whether it is in use or not. A call that may let one
// grow reserves what was asked for, or what it grew by last time, and is corrected afterwards; one that may let it shrink
// only has to be followed by a look. Before anybody is refused, what is not in use is given back.
#pragma once

#include <atomic>
#include <optional>

#include "driver/cuda_api.h"
#include "region/region.h"

namespace vgpu::runtime {

struct Stock;

// The stock behind a pool, whichever way the program got hold of it. Null: not one that takes memory of the job's
// devices: a pool on the host, an imported one, from which nothing can be allocated, or (then `elsewhere` says so) the
// pool of a device that is not the job's.
Stock *stock_of(CUmemoryPool pool, bool *elsewhere);
// The one that all graphs of a device share.
Stock *graph_stock(CUdevice ordinal);

// A pool that was made for a device of the job's. Others are the devices' own and found when first used. False: there is
// no place for one more.
bool pool_made(CUmemoryPool pool, CUdevice ordinal);
// Before the driver destroys one, whose name it may then give to another at once: what is idle in it is given back.
// What is in use stays, unseen, until it is freed: it is no longer recorded, but still charged, and the caller's to deal
// with. If the driver does not destroy the pool, it is put back.
struct Forgotten {
  CUdevice ordinal = 0;
  unsigned dev = 0;
  std::uint64_t bytes = 0;
  bool known = false;
};
Forgotten forget_pool(CUmemoryPool pool);
void put_back_pool(CUmemoryPool pool, const Forgotten &forgotten);

// While one of these lives, no other thread of this process is between reserving from a stock of the device and knowing
// what it took. What such a thread has reserved is a guess, and nobody is refused because of a guess. Whoever needs
// several devices goes by their ordinals, so that no two threads wait for each other.
class OthersStopped {
 public:
  explicit OthersStopped(unsigned dev);
  ~OthersStopped();
  OthersStopped(const OthersStopped &) = delete;
  OthersStopped &operator=(const OthersStopped &) = delete;

 private:
  unsigned dev_;
};

class StockCharge {
 public:
  StockCharge(Stock &stock, std::uint64_t bytes) : stock_(stock), bytes_(bytes) {}
  StockCharge(const StockCharge &) = delete;
  StockCharge &operator=(const StockCharge &) = delete;

  // Before the call. What is in stock and idle is given back before this refuses and says why.
  bool reserve();
  // The call failed, or was undone.
  void cancel() { finish(0); }
  // False: the stock grew by more than the limit leaves. Undo the call, then cancel(); reserve_again() says whether the
  // call is worth another try, alone and now that nothing is idle.
  bool settle();
  bool reserve_again();
  // For what cannot be undone.
  void settle_whatever_it_took() { finish(reserved_); }

 private:
  bool try_to_reserve();
  bool take(std::uint64_t units);
  bool is_there();
  bool reserve_what_is_idle();
  void enter();
  void leave();
  void finish(std::uint64_t taken_if_unknown);

  Stock &stock_;
  std::uint64_t bytes_;
  std::uint64_t reserved_ = 0;  // units
  region::Grant grant_ = region::Grant::granted;
  bool guessed_ = false;                // it looked as if what is idle would do
  bool disturbed_ = false;              // what did not fit may fit when we are alone
  std::optional<OthersStopped> alone_;  // before the last try
};

// Something may have shrunk, now or at the next synchronisation.
extern std::atomic<bool> stock_may_shrink;
void note_stock_may_shrink();
void look_at_stock();

// After calls at which the driver gives back what was freed.
inline void look_at_stock_when_due() {
  if (__builtin_expect(stock_may_shrink.load(std::memory_order_relaxed), false)) look_at_stock();
}

// Gives back what is in stock and not in use on a device. False: there was nothing.
bool trim_stock(unsigned dev);

}  // namespace vgpu::runtime
