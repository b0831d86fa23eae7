#include "physical.h"

#include "allocations.h"
#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "imports.h"
#include "region/words.h"
#include "runtime.h"
#include "untracked_memory.h"

namespace vgpu::runtime {

namespace {

// A piece of physical memory is a number of ours; its charge is in the table of allocations, and here is who holds on to
// it. Memory that others made and we imported has no charge here.
using Handles = region::Field<0, 30>;
using Mappings = region::Field<30, 30>;
using Shared = region::Field<60, 1>;
using Exported = region::Field<61, 1>;
using IsImport = region::Field<62, 1>;
using PieceNumber = region::Field<0, 30>;
using MappedUnits = region::Field<30, 33>;
using Names = region::Field<30, 31>;  // how many handles of the same name are not being released

struct Pieces {
  Mutex mutex;
  std::uint64_t last_number VGPU_GUARDED_BY(mutex);
  FlatMap by_handle VGPU_GUARDED_BY(mutex);   // -> number and names
  FlatMap by_address VGPU_GUARDED_BY(mutex);  // start of a mapping -> its length and the piece's number
  FlatMap references VGPU_GUARDED_BY(mutex);  // number -> handles and mappings
};
constinit WipedOnFork<Pieces> pieces;

std::uint64_t key_of(std::uint64_t number) { return allocation_key(Handle::ours, number); }

constexpr int kNone = -1;

// Gives the charge back when this was the last reference; returns the device whose untracked memory must
// then be measured, or kNone.
int change_references(Pieces &all, std::uint64_t number, int handles, int mappings) VGPU_REQUIRES(all.mutex) {
  std::uint64_t *word = all.references.find(number);
  if (word == nullptr) return kNone;
  const std::uint64_t handles_now = Handles::get(*word) + static_cast<std::uint64_t>(handles);
  const std::uint64_t mappings_now = Mappings::get(*word) + static_cast<std::uint64_t>(mappings);
  const bool shared = Shared::get(*word) != 0, is_import = IsImport::get(*word) != 0;
  *word = (*word & (Shared::put(1) | Exported::put(1) | IsImport::put(1))) | Handles::put(handles_now) |
          Mappings::put(mappings_now);
  if (handles_now != 0 || mappings_now != 0) return kNone;
  all.references.erase(word);
  if (is_import) {
    close_import(key_of(number));
    return kNone;
  }
  Allocation allocation;
  if (!take_allocation(key_of(number), &allocation)) return kNone;
  if (shared) {
    untrack_data(allocation.dev, region::bytes_of(allocation.units));
    return static_cast<int>(allocation.dev);
  }
  rank().release(allocation.dev, region::Kind::data, region::bytes_of(allocation.units));
  return kNone;
}

void measure(int dev) {
  if (dev != kNone) settle_untracked(static_cast<unsigned>(dev), region::Kind::data);
}

// One more handle of this name. False: no memory for it.
bool add_name(Pieces &all, CUmemGenericAllocationHandle handle, std::uint64_t number) VGPU_REQUIRES(all.mutex) {
  std::uint64_t *name = all.by_handle.insert(handle);
  if (name == nullptr) return false;
  *name = PieceNumber::put(number) | Names::put(Names::get(*name) + 1);
  return true;
}

// 0: not ours, or nothing.
std::uint64_t number_of(Pieces &all, CUmemGenericAllocationHandle handle) VGPU_REQUIRES(all.mutex) {
  const std::uint64_t *name = all.by_handle.find(handle);
  return name != nullptr ? PieceNumber::get(*name) : 0;
}

// The address may lie anywhere in a mapping.
std::uint64_t number_at(Pieces &all, std::uint64_t address) VGPU_REQUIRES(all.mutex) {
  std::uint64_t number = 0;
  all.by_address.for_each([&](std::uint64_t start, std::uint64_t mapping) {
    if (address >= start && address - start < region::bytes_of(MappedUnits::get(mapping)))
      number = PieceNumber::get(mapping);
  });
  return number;
}

// A new number with one handle. 0: no memory for it.
std::uint64_t add_piece(Pieces &all, std::uint64_t flags) VGPU_REQUIRES(all.mutex) {
  std::uint64_t number = all.last_number;
  do {
    number = PieceNumber::get(number + 1);
  } while (number == 0 || all.references.find(number) != nullptr);
  all.last_number = number;
  std::uint64_t *references = all.references.insert(number);
  if (references == nullptr) return 0;
  *references = Handles::put(1) | flags;
  return number;
}

void share(Pieces &all, std::uint64_t number) VGPU_REQUIRES(all.mutex) {
  if (std::uint64_t *word = all.references.find(number)) *word |= Shared::put(1);
}

}  // namespace

bool physical_made(CUmemGenericAllocationHandle handle, unsigned dev, std::uint64_t units) {
  Pieces *all = pieces.get();
  if (all == nullptr) return false;
  ScopedLock lock(all->mutex);
  const std::uint64_t number = add_piece(*all, 0);
  if (number == 0) return false;
  Allocation displaced;
  if (add_allocation(key_of(number), {units, dev, 0, false}, &displaced)) {
    if (add_name(*all, handle, number)) return true;
    take_allocation(key_of(number), &displaced);
  }
  all->references.erase(all->references.find(number));
  return false;
}

Imported physical_imported(CUmemGenericAllocationHandle handle) {
  Pieces *all = pieces.get();
  if (all == nullptr) return {};
  ScopedLock lock(all->mutex);
  if (const std::uint64_t known = number_of(*all, handle); known != 0) {
    if (add_name(*all, handle, known)) change_references(*all, known, 1, 0);
    return {};
  }
  const std::uint64_t number = add_piece(*all, IsImport::put(1));
  if (number == 0) return {};
  if (add_name(*all, handle, number)) return {key_of(number)};
  all->references.erase(all->references.find(number));
  return {};
}

void physical_retained(CUmemGenericAllocationHandle handle, std::uint64_t address) {
  Pieces *all = pieces.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  // The handle may be the one we know, or a new name for the same piece.
  const std::uint64_t known = number_of(*all, handle);
  const std::uint64_t number = known != 0 ? known : number_at(*all, address);
  if (number != 0 && add_name(*all, handle, number)) change_references(*all, number, 1, 0);
}

std::uint64_t physical_releasing(CUmemGenericAllocationHandle handle) {
  Pieces *all = pieces.get();
  if (all == nullptr) return 0;
  ScopedLock lock(all->mutex);
  std::uint64_t *name = all->by_handle.find(handle);
  if (name == nullptr) return 0;
  const std::uint64_t number = PieceNumber::get(*name);
  const std::uint64_t names = Names::get(*name) - 1;
  *name = PieceNumber::put(number) | Names::put(names);
  if (names == 0) all->by_handle.erase(name);
  return number;
}

void physical_released(CUmemGenericAllocationHandle handle, std::uint64_t piece, bool released) {
  Pieces *all = pieces.get();
  if (all == nullptr || piece == 0) return;
  int unmeasured = kNone;
  {
    ScopedLock lock(all->mutex);
    if (released) {
      unmeasured = change_references(*all, piece, -1, 0);
    } else {
      add_name(*all, handle, piece);
    }
  }
  measure(unmeasured);
}

void physical_mapped(CUmemGenericAllocationHandle handle, std::uint64_t address, std::uint64_t bytes) {
  Pieces *all = pieces.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  const std::uint64_t number = number_of(*all, handle);
  std::uint64_t *mapping = all->by_address.insert(address);
  if (mapping == nullptr) return;
  // What is not ours is entered as piece 0, so that a range of several mappings can be followed to its end.
  *mapping = PieceNumber::put(number) | MappedUnits::put(region::units_for(bytes));
  if (number == 0) return;
  change_references(*all, number, 0, 1);
  if (IsImport::get(*all->references.find(number)) != 0) import_is_at_least(key_of(number), bytes);
}

void physical_unmapped(std::uint64_t address, std::uint64_t bytes) {
  Pieces *all = pieces.get();
  if (all == nullptr) return;
  for (const std::uint64_t end = address + bytes; address < end;) {
    int unmeasured = kNone;
    {
      ScopedLock lock(all->mutex);
      std::uint64_t *mapping = all->by_address.find(address);
      if (mapping == nullptr) return;
      const std::uint64_t number = PieceNumber::get(*mapping);
      address += region::bytes_of(MappedUnits::get(*mapping));
      all->by_address.erase(mapping);
      if (number != 0) unmeasured = change_references(*all, number, 0, -1);
    }
    measure(unmeasured);
  }
}

void physical_shared(CUmemGenericAllocationHandle handle) {
  Pieces *all = pieces.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  share(*all, number_of(*all, handle));
}

void physical_exported(CUmemGenericAllocationHandle handle) {
  Pieces *all = pieces.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  const std::uint64_t number = number_of(*all, handle);
  std::uint64_t *word = all->references.find(number);
  if (word == nullptr) return;
  const bool is_new = (*word & (Exported::put(1) | IsImport::put(1))) == 0;
  *word |= Shared::put(1) | Exported::put(1);
  Allocation allocation;
  if (is_new && share_allocation(key_of(number), &allocation)) {
    exported(allocation.dev, region::bytes_of(allocation.units));
  }
}

void physical_shared_at(std::uint64_t address) {
  Pieces *all = pieces.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  share(*all, number_at(*all, address));
}

}  // namespace vgpu::runtime
