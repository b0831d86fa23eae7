// A list of processes as NVML writes it, whatever it writes for one.
//
// NVML is asked with room enough for all. How much the driver writes for an entry is measured, not believed: early drivers
// of the 535 series wrote 32 bytes where the header says 24.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/cuda_api.h"

namespace vgpu::runtime {

struct EntryShape {
  std::size_t alignment;
  std::size_t pid_offset;
};

template <typename Entry>
inline constexpr EntryShape kShape{alignof(Entry), offsetof(Entry, pid)};
template <>
inline constexpr EntryShape kShape<unsigned>{alignof(unsigned), 0};

class NvmlList {
 public:
  explicit NvmlList(EntryShape shape) : shape_(shape) {}
  ~NvmlList();
  NvmlList(const NvmlList &) = delete;
  NvmlList &operator=(const NvmlList &) = delete;

  // Fills the list by call(count, entries), which is NVML's own.
  template <typename Call>
  nvmlReturn_t fetch(Call call) {
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned tries = 0; result == NVML_ERROR_INSUFFICIENT_SIZE && tries < kTries; ++tries) {
      // More than there were the last time: they may be growing.
      if (!make_room(2 * count_ + kSpare)) return NVML_ERROR_MEMORY;
      count_ = room_;
      result = call(&count_, static_cast<void *>(entries_));
    }
    if (result == NVML_SUCCESS) {
      measure();
    } else {
      count_ = 0;
    }
    return result;
  }

  unsigned count() const { return count_; }
  const void *entry(unsigned index) const { return entries_ + index * stride_; }
  unsigned pid(unsigned index) const;

 protected:
  // Keeps the entries for which `wanted(pid)` is true.
  template <typename Wanted>
  void keep(Wanted wanted) {
    unsigned kept = 0;
    for (unsigned i = 0; i < count_; ++i) {
      if (wanted(pid(i))) move(kept++, i);
    }
    count_ = kept;
  }
  void copy_to(void *entries) const;

 private:
  static constexpr unsigned kSpare = 256;
  static constexpr unsigned kTries = 5;
  static constexpr std::size_t kMostBytes = 64;  // for an entry

  bool make_room(unsigned entries);
  void measure();
  void move(unsigned to, unsigned from);

  EntryShape shape_;
  unsigned char *entries_ = nullptr;
  unsigned room_ = 0;
  unsigned count_ = 0;
  std::size_t stride_ = 0;
};

}  // namespace vgpu::runtime
