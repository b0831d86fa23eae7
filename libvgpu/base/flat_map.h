// A hash map from 64-bit keys to 64-bit values that is empty when it is all zeroes, and allocates by mmap alone.
//
// Open addressing with linear probing, at most half full; removal moves later entries back, so there are no graves and a
// million entries cost no more per call than ten. Key 0 is not a key. The owner locks.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace vgpu {

class FlatMap {
 public:
  static constexpr std::uint64_t hash(std::uint64_t key) {
    key *= 0x9e3779b97f4a7c15;
    return key ^ key >> 32;
  }

  // Null: not there.
  std::uint64_t *find(std::uint64_t key) { return find(key, hash(key)); }
  std::uint64_t *find(std::uint64_t key, std::uint64_t hashed) {
    if (used_ == 0) return nullptr;
    for (std::size_t at = home(hashed);; at = next(at)) {
      Entry &entry = entries_[at];
      if (entry.key == key) return &entry.value;
      if (entry.key == 0) return nullptr;
    }
  }

  // The value of the key, 0 if it is new. Null: no memory.
  std::uint64_t *insert(std::uint64_t key) { return insert(key, hash(key)); }
  std::uint64_t *insert(std::uint64_t key, std::uint64_t hashed) {
    if (2 * (used_ + 1) > capacity_ && !grow()) return nullptr;
    Entry &entry = entries_[place(key, hashed)];
    if (entry.key == 0) {
      entry = {key, 0};
      ++used_;
    }
    return &entry.value;
  }

  // What find() or insert() returned last.
  void erase(std::uint64_t *value) {
    remove(static_cast<std::size_t>(
        reinterpret_cast<Entry *>(reinterpret_cast<char *>(value) - offsetof(Entry, value)) - entries_));
  }

  template <typename Work>
  void for_each(Work work) const {
    for (std::size_t at = 0; at < capacity_; ++at) {
      if (entries_[at].key != 0) work(entries_[at].key, entries_[at].value);
    }
  }

  template <typename Predicate>
  void erase_if(Predicate predicate) {
    for (std::size_t at = 0; at < capacity_;) {
      if (entries_[at].key != 0 && predicate(entries_[at].key, entries_[at].value)) {
        remove(at);  // what moves here is looked at next
      } else {
        ++at;
      }
    }
  }

 private:
  struct Entry {
    std::uint64_t key;  // 0: empty
    std::uint64_t value;
  };
  static constexpr std::size_t kFirstCapacity = 256;  // one page

  std::size_t home(std::uint64_t hashed) const { return hashed & (capacity_ - 1); }
  std::size_t next(std::size_t at) const { return (at + 1) & (capacity_ - 1); }

  // Where the key is, or where it belongs.
  std::size_t place(std::uint64_t key, std::uint64_t hashed) const {
    std::size_t at = home(hashed);
    while (entries_[at].key != 0 && entries_[at].key != key) at = next(at);
    return at;
  }

  void remove(std::size_t hole) {
    --used_;
    for (std::size_t at = next(hole); entries_[at].key != 0; at = next(at)) {
      // An entry may move back to the hole unless its home lies between the two.
      const std::size_t from_home = (at - home(hash(entries_[at].key))) & (capacity_ - 1);
      const std::size_t from_hole = (at - hole) & (capacity_ - 1);
      if (from_home < from_hole) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole] = {};
  }

  [[gnu::cold]] bool grow() {
    const std::size_t capacity = std::max(kFirstCapacity, 2 * capacity_);
    void *fresh = mmap(nullptr, capacity * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return false;
    Entry *old = entries_;
    const std::size_t old_capacity = capacity_;
    entries_ = static_cast<Entry *>(fresh);
    capacity_ = capacity;
    for (std::size_t i = 0; i < old_capacity; ++i) {
      if (old[i].key != 0) entries_[place(old[i].key, hash(old[i].key))] = old[i];
    }
    if (old != nullptr) munmap(old, old_capacity * sizeof(Entry));
    return true;
  }

  std::size_t capacity_;
  std::size_t used_;
  Entry *entries_;
};

}  // namespace vgpu
