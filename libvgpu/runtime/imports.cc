#include "imports.h"

#include <algorithm>
#include <atomic>

#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "look.h"
#include "region/words.h"
#include "runtime.h"

namespace vgpu::runtime {

namespace {

using Units = region::Field<0, 33>;
using Dev = region::Field<33, 6>;

enum class Counts : std::uint8_t { unknown, for_maker, for_all };

struct Imports {
  Mutex mutex;
  FlatMap by_key VGPU_GUARDED_BY(mutex);  // -> device and units
  std::uint64_t units[region::kMaxDevices] VGPU_GUARDED_BY(mutex);
  std::atomic<Counts> counts;
  std::atomic<std::uint64_t> exported[region::kMaxDevices];  // bytes
};
constinit WipedOnFork<Imports> imports;

}  // namespace

Import::Import(unsigned dev) : dev_(dev) {
  const Imports *all = imports.get();
  if (all == nullptr || all->counts.load(std::memory_order_relaxed) != Counts::unknown) return;
  const Look look = look_at(dev);
  learning_ = look.sight == Sight::known;
  seen_before_ = look.seen;
}

void Import::finish(std::uint64_t key, std::uint64_t bytes) {
  Imports *all = imports.get();
  if (all == nullptr) return;
  if (learning_ && bytes != 0) {
    const Look look = look_at(dev_);
    const bool grew = look.seen >= seen_before_ + bytes;
    if (look.sight == Sight::known) {
      all->counts.store(grew ? Counts::for_all : Counts::for_maker, std::memory_order_relaxed);
    }
  }
  ScopedLock lock(all->mutex);
  std::uint64_t *value = all->by_key.insert(key);
  if (value == nullptr) return;
  all->units[dev_] += region::units_for(bytes) - (Dev::get(*value) == dev_ ? Units::get(*value) : 0);
  *value = Units::put(region::units_for(bytes)) | Dev::put(dev_);
}

void import_closed(std::uint64_t key) {
  Imports *all = imports.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  std::uint64_t *value = all->by_key.find(key);
  if (value == nullptr) return;
  all->units[Dev::get(*value)] -= Units::get(*value);
  all->by_key.erase(value);
}

std::uint64_t explained_by_imports(unsigned dev) {
  Imports *all = imports.get();
  if (all == nullptr || all->counts.load(std::memory_order_relaxed) != Counts::for_all) return 0;
  std::uint64_t opened = 0;
  {
    ScopedLock lock(all->mutex);
    opened = region::bytes_of(all->units[dev]);
  }
  return opened != 0 ? std::min(opened, rank().exported_by_others(dev)) : 0;
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
