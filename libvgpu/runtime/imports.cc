#include "imports.h"

#include <algorithm>
#include <atomic>

#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "devices.h"
#include "look.h"
#include "region/words.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

namespace {

using Units = region::Field<0, 33>;
using Dev = region::Field<33, 6>;

enum class Counts : std::uint8_t { unknown, for_maker, for_all };

struct Imports {
  Mutex mutex;
  FlatMap by_key VGPU_GUARDED_BY(mutex);  // -> device and units
  std::uint64_t units[region::kMaxDevices] VGPU_GUARDED_BY(mutex);
  std::atomic<bool> any;  // ever
  std::atomic<Counts> counts;
  std::atomic<std::uint64_t> exported[region::kMaxDevices];  // bytes
};
constinit WipedOnFork<Imports> imports;

bool are_for_all(const Imports &all) { return all.counts.load(std::memory_order_relaxed) == Counts::for_all; }

void resize(Imports &all, std::uint64_t *value, unsigned dev, std::uint64_t units) VGPU_REQUIRES(all.mutex) {
  all.units[Dev::get(*value)] -= Units::get(*value);
  *value = Units::put(units) | Dev::put(dev);
  all.units[dev] += units;
  if (are_for_all(all)) rank().note_imported(dev, region::bytes_of(all.units[dev]));
}

}  // namespace

// Where it is known that imports count for their makers alone, nothing is looked at; where they count for all, only a look
// tells what a driver takes for one, such as all of a pool's chunk for a piece of it.
Import::Import(int dev) : dev_(dev) {
  const Imports *all = imports.get();
  if (all == nullptr || dev == kNotInJob) return;
  const Counts counts = all->counts.load(std::memory_order_relaxed);
  const auto index = static_cast<unsigned>(dev);
  if (counts == Counts::for_maker || (counts == Counts::for_all && !looks_are_cheap(index))) return;
  const Look look = look_at(index);
  learning_ = look.sight == Sight::known;
  before_ = look.least;
}

void Import::finish(unsigned dev, std::uint64_t key, std::uint64_t bytes) {
  Imports *all = imports.get();
  if (all == nullptr) return;
  const Look look = learning_ && dev_ == static_cast<int>(dev) ? look_at(dev) : Look{};
  // What nobody of the job is charged for is counted here because its maker is gone, or another job's.
  const std::uint64_t shared = look.sight == Sight::known ? rank().exported_by_others(dev) : 0;
  if (shared != 0) {
    const std::uint64_t grown = look.least - std::min(look.least, before_);
    if (grown != 0 && grown >= bytes && grown <= shared) {
      all->counts.store(Counts::for_all, std::memory_order_relaxed);
      bytes = grown;
    } else if (grown == 0 && !are_for_all(*all)) {
      all->counts.store(Counts::for_maker, std::memory_order_relaxed);
    }
  }
  all->any.store(true, std::memory_order_relaxed);
  ScopedLock lock(all->mutex);
  if (std::uint64_t *value = all->by_key.insert(key)) resize(*all, value, dev, region::units_for(bytes));
}

void import_is_at_least(std::uint64_t key, std::uint64_t bytes) {
  Imports *all = imports.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  std::uint64_t *value = all->by_key.find(key);
  if (value != nullptr && Units::get(*value) < region::units_for(bytes)) {
    resize(*all, value, static_cast<unsigned>(Dev::get(*value)), region::units_for(bytes));
  }
}

void import_closed(std::uint64_t key) {
  Imports *all = imports.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  std::uint64_t *value = all->by_key.find(key);
  if (value == nullptr) return;
  resize(*all, value, static_cast<unsigned>(Dev::get(*value)), 0);
  all->by_key.erase(value);
}

void close_import(std::uint64_t key) {
  import_closed(key);
  note_untracked_growth();
}

bool has_imports() {
  const Imports *all = imports.get();
  return all != nullptr && all->any.load(std::memory_order_relaxed);
}

std::uint64_t explained_by_imports(unsigned dev) {
  const Imports *all = imports.get();
  return all != nullptr && are_for_all(*all) ? rank().counted_twice(dev) : 0;
}

void exported(unsigned dev, std::uint64_t bytes) {
  Imports *all = imports.get();
  if (all == nullptr) return;
  all->exported[dev].fetch_add(bytes, std::memory_order_relaxed);
  rank().note_exported(dev, static_cast<std::int64_t>(bytes));
}

bool has_exported(unsigned dev) {
  const Imports *all = imports.get();
  return all != nullptr && all->exported[dev].load(std::memory_order_relaxed) != 0;
}

void no_longer_charged(unsigned dev, std::uint64_t bytes) {
  Imports *all = imports.get();
  if (all == nullptr) return;
  std::uint64_t before = all->exported[dev].load(std::memory_order_relaxed);
  std::uint64_t part = 0;
  do {
    part = std::min(before, bytes);
    if (part == 0) return;
  } while (!all->exported[dev].compare_exchange_weak(before, before - part, std::memory_order_relaxed));
  rank().note_exported(dev, -static_cast<std::int64_t>(part));
}

}  // namespace vgpu::runtime
