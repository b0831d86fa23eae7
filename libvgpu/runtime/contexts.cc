#include "contexts.h"

#include "base/mutex.h"
#include "base/wiped.h"
#include "blocks.h"
#include "devices.h"
#include "driver/table.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

namespace {

constexpr unsigned kMaxContexts = 1024;

struct Entry {
  CUcontext context;  // null: free
  CUdevice ordinal;
  int dev;
  unsigned uses;
  bool primary;
  bool closing;  // its handle is no longer its own
  // Not 0: a green context, or a context it was converted to. What is allocated there is this context's.
  unsigned home;
  CUgreenCtx green;
  std::uint32_t serial;
  std::uint64_t charged;  // for itself, in bytes
  bool guessed;           // ... and nobody has measured it

  bool is(CUcontext handle) const { return context == handle && !closing; }
};

struct Contexts {
  Mutex mutex;
  unsigned high VGPU_GUARDED_BY(mutex);                // no entry in use at or beyond this
  Entry entries[kMaxContexts] VGPU_GUARDED_BY(mutex);  // entry 0 stays unused
};
constinit WipedOnFork<Contexts> contexts;

// Epochs of a process never occur in its children, whose threads inherit what they remembered.
std::atomic<std::uint32_t> last_epoch{0};
std::uint32_t fresh_epoch() { return last_epoch.fetch_add(1, std::memory_order_relaxed) + 1; }

void forget_remembered() {
  if (std::atomic<std::uint32_t> *epoch = context_epoch.get()) epoch->store(fresh_epoch(), std::memory_order_release);
}

unsigned find(const Contexts &all, CUcontext context) VGPU_REQUIRES(all.mutex) {
  for (unsigned i = 1; i < all.high; ++i) {
    if (all.entries[i].is(context)) return i;
  }
  return 0;
}

unsigned find_or_add(Contexts &all, CUcontext context, CUdevice ordinal) VGPU_REQUIRES(all.mutex) {
  if (const unsigned found = find(all, context)) return found;
  unsigned index = 1;
  while (index < all.high && all.entries[index].context != nullptr) ++index;
  if (index >= kMaxContexts) return 0;
  if (index >= all.high) all.high = index + 1;
  all.entries[index] = {context, ordinal, region_device(ordinal), 1, false, false, 0, nullptr, fresh_epoch(), 0, false};
  return index;
}

void add_green(Contexts &all, CUcontext context, CUgreenCtx green, unsigned home) VGPU_REQUIRES(all.mutex) {
  const unsigned index = find_or_add(all, context, all.entries[home].ordinal);
  if (index == 0) return;
  all.entries[index].home = home;
  all.entries[index].green = green;
}

Place place_of(const Contexts &all, unsigned index) VGPU_REQUIRES(all.mutex) {
  const Entry &entry = all.entries[index];
  return {entry.home != 0 ? entry.home : index, entry.dev, entry.ordinal, entry.serial};
}

// A green context and what it was converted to. One that is closing may have left its handle to another.
template <typename Change>
void for_each_face(CUgreenCtx green, bool closing, Change change) {
  Contexts *all = contexts.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  for (unsigned i = 1; i < all->high; ++i) {
    Entry &entry = all->entries[i];
    if (entry.green == green && entry.closing == closing) change(*all, entry);
  }
}

}  // namespace

[[gnu::tls_model("initial-exec")]] thread_local constinit Remembered remembered{};
constinit WipedOnFork<std::atomic<std::uint32_t>> context_epoch;

bool look_up_place(CUcontext current, Place *place) {
  Contexts *all = contexts.get();
  if (all == nullptr) return false;
  // First of all: if a context goes meanwhile, what is found here is not remembered.
  std::uint32_t epoch = context_epoch.get()->load(std::memory_order_acquire);
  if (epoch == 0) {
    const std::uint32_t fresh = fresh_epoch();
    epoch = context_epoch.get()->compare_exchange_strong(epoch, fresh, std::memory_order_acq_rel) ? fresh : epoch;
  }
  CUdevice ordinal = 0;
  if (REAL(cuCtxGetDevice)(&ordinal) != CUDA_SUCCESS) return false;
  bool is_new = false;
  {
    ScopedLock lock(all->mutex);
    is_new = find(*all, current) == 0;
    const unsigned index = find_or_add(*all, current, ordinal);
    is_new = is_new && index != 0;
    *place = index != 0 ? place_of(*all, index) : Place{0, region_device(ordinal), ordinal, 0};
  }
  if (place->dev == kNotInJob) return true;
  remembered = {current, epoch, *place};
  // Made by a way that we do not see, such as the driver's private tables.
  if (is_new) charge_unseen_context(static_cast<unsigned>(place->dev), current);
  return true;
}

bool known_place(CUcontext context, Place *place) {
  Contexts *all = contexts.get();
  if (all == nullptr) return false;
  ScopedLock lock(all->mutex);
  const unsigned index = find(*all, context);
  if (index == 0) return false;
  *place = place_of(*all, index);
  return true;
}

bool context_is_open(std::uint32_t serial) {
  Contexts *all = contexts.get();
  if (all == nullptr) return false;
  ScopedLock lock(all->mutex);
  for (unsigned i = 1; i < all->high; ++i) {
    const Entry &entry = all->entries[i];
    if (entry.context != nullptr && !entry.closing && entry.serial == serial) return true;
  }
  return false;
}

void context_opened(CUcontext context, CUdevice ordinal) {
  if (Contexts *all = contexts.get()) {
    ScopedLock lock(all->mutex);
    find_or_add(*all, context, ordinal);
  }
}

void primary_retained(CUcontext context, CUdevice ordinal) {
  if (Contexts *all = contexts.get()) {
    ScopedLock lock(all->mutex);
    if (const unsigned index = find_or_add(*all, context, ordinal)) all->entries[index].primary = true;
  }
}

CUcontext primary_context(CUdevice ordinal) {
  Contexts *all = contexts.get();
  if (all == nullptr) return nullptr;
  ScopedLock lock(all->mutex);
  for (unsigned i = 1; i < all->high; ++i) {
    const Entry &entry = all->entries[i];
    if (entry.context != nullptr && !entry.closing && entry.primary && entry.ordinal == ordinal) return entry.context;
  }
  return nullptr;
}

void context_attached(CUcontext context) {
  if (Contexts *all = contexts.get()) {
    ScopedLock lock(all->mutex);
    if (const unsigned index = find(*all, context)) ++all->entries[index].uses;
  }
}

unsigned context_detached(CUcontext context) {
  Contexts *all = contexts.get();
  if (all == nullptr) return 0;
  ScopedLock lock(all->mutex);
  const unsigned index = find(*all, context);
  return index != 0 && all->entries[index].uses > 0 ? --all->entries[index].uses : 0;
}

unsigned context_closing(CUcontext context) {
  Contexts *all = contexts.get();
  if (all == nullptr) return 0;
  ScopedLock lock(all->mutex);
  const unsigned index = find(*all, context);
  if (index == 0) return 0;
  all->entries[index].closing = true;
  forget_remembered();
  return index;
}

void context_kept(unsigned number) {
  if (number == 0) return;
  Contexts *all = contexts.get();
  ScopedLock lock(all->mutex);
  all->entries[number].closing = false;
}

ClosedContext context_closed(unsigned number) {
  if (number == 0) return {kNotInJob};
  Contexts *all = contexts.get();
  ScopedLock lock(all->mutex);
  const ClosedContext closed = {all->entries[number].dev, all->entries[number].charged};
  // Under the lock: the number must not be given to a new context while this one's allocations still bear it.
  give_back_all_of(number);
  all->entries[number] = {};
  for (unsigned i = 1; i < all->high; ++i) {
    if (all->entries[i].home == number) all->entries[i] = {};
  }
  return closed;
}

void context_charged(CUcontext context, std::uint64_t bytes, bool guessed) {
  Contexts *all = contexts.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  const unsigned index = find(*all, context);
  if (index == 0) return;
  all->entries[index].charged = bytes;
  all->entries[index].guessed = guessed;
}

void correct_context_charges(unsigned dev, std::int64_t bytes) {
  Contexts *all = contexts.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  for (unsigned i = 1; i < all->high; ++i) {
    Entry &entry = all->entries[i];
    if (entry.context == nullptr || !entry.guessed || entry.dev != static_cast<int>(dev)) continue;
    entry.guessed = false;
    // The first takes all of it; the later ones share with it.
    const std::int64_t corrected = static_cast<std::int64_t>(entry.charged) + bytes;
    entry.charged = corrected > 0 ? static_cast<std::uint64_t>(corrected) : 0;
    bytes = corrected > 0 ? 0 : corrected;
  }
}

void green_opened(CUgreenCtx green, CUcontext primary) {
  Contexts *all = contexts.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  if (const unsigned home = find(*all, primary)) add_green(*all, reinterpret_cast<CUcontext>(green), green, home);
}

void green_converted(CUgreenCtx green, CUcontext context) {
  Contexts *all = contexts.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  const unsigned index = find(*all, reinterpret_cast<CUcontext>(green));
  if (index != 0 && find(*all, context) == 0) add_green(*all, context, green, all->entries[index].home);
}

void green_closing(CUgreenCtx green) {
  for_each_face(green, false, [](Contexts &, Entry &entry) {
    entry.closing = true;
    forget_remembered();
  });
}

void green_closed(CUgreenCtx green) {
  for_each_face(green, true, [](Contexts &, Entry &entry) { entry = {}; });
}

void green_kept(CUgreenCtx green) {
  for_each_face(green, true, [](Contexts &, Entry &entry) { entry.closing = false; });
}

bool green_place(CUgreenCtx green, Place *place) { return known_place(reinterpret_cast<CUcontext>(green), place); }

unsigned live_contexts(unsigned dev) {
  Contexts *all = contexts.get();
  if (all == nullptr) return 0;
  ScopedLock lock(all->mutex);
  unsigned count = 0;
  for (unsigned i = 1; i < all->high; ++i) {
    const Entry &entry = all->entries[i];
    count += entry.context != nullptr && entry.home == 0 && entry.dev == static_cast<int>(dev);
  }
  return count;
}

}  // namespace vgpu::runtime
