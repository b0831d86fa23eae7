// A list of processes that NVML gives, without those that are not the job's.
//
// NVML is asked with room enough for all, whatever room the program has. How much the driver writes for an entry is
// measured, not believed: early drivers of the 535 series wrote 32 bytes where the header says 24, and a program that
// runs on such a driver expects just that. What is left of the list is handed on as the driver wrote it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/cuda_api.h"
#include "driver/nvml_call.h"
#include "runtime.h"

namespace vgpu::runtime {

struct EntryShape {
  std::size_t alignment;
  std::size_t pid_offset;
};

template <typename Entry>
inline constexpr EntryShape kShape{alignof(Entry), offsetof(Entry, pid)};
template <>
inline constexpr EntryShape kShape<unsigned>{alignof(unsigned), 0};

class FilteredList {
 public:
  explicit FilteredList(EntryShape shape) : shape_(shape) {}
  ~FilteredList();
  FilteredList(const FilteredList &) = delete;
  FilteredList &operator=(const FilteredList &) = delete;

  // Fills the list by call(count, entries), which is NVML's own, and keeps what is the job's.
  template <typename Call>
  nvmlReturn_t fetch(Call call) {
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned tries = 0; result == NVML_ERROR_INSUFFICIENT_SIZE && tries < kTries; ++tries) {
      // More than there were the last time: they may be growing.
      if (!make_room(2 * count_ + kSpare)) return NVML_ERROR_MEMORY;
      count_ = room_;
      result = call(&count_, static_cast<void *>(entries_));
    }
    if (result != NVML_SUCCESS) {
      count_ = 0;
    } else {
      measure();
      keep_job_processes();
    }
    return result;
  }

  unsigned count() const { return count_; }
  const void *entry(unsigned index) const { return entries_ + index * stride_; }

  // The end of every such call of NVML's: all of it, or how much room it needs.
  nvmlReturn_t give(unsigned *count, void *entries) const;

 private:
  static constexpr unsigned kSpare = 256;
  static constexpr unsigned kTries = 5;
  static constexpr std::size_t kMostBytes = 64;  // for an entry

  bool make_room(unsigned entries);
  void measure();
  void keep_job_processes();
  unsigned pid(unsigned index) const;

  EntryShape shape_;
  unsigned char *entries_ = nullptr;
  unsigned room_ = 0;
  unsigned count_ = 0;
  std::size_t stride_ = 0;
};

// How a family of calls answers.
struct ListProtocol {
  nvmlReturn_t if_empty;
  bool null_asks_for_room;  // a null pointer does so whatever the count says; else only a count of 0 does
  nvmlReturn_t if_asked;    // for how much room is needed, when it is some
};
inline constexpr ListProtocol kRunning{NVML_SUCCESS, false, NVML_ERROR_INSUFFICIENT_SIZE};
inline constexpr ListProtocol kSampled{NVML_ERROR_NOT_FOUND, true, NVML_ERROR_INSUFFICIENT_SIZE};
inline constexpr ListProtocol kSessions{NVML_SUCCESS, false, NVML_SUCCESS};

// A call of the program's that lists processes.
template <typename Entry, typename Call>
nvmlReturn_t list_job_processes(const ListProtocol &protocol, unsigned *count, Entry *entries, Call call) {
  const driver::NvmlCall guard;
  // NVML itself says what is wrong with a question.
  const bool is_wrong = count == nullptr || (entries == nullptr && *count != 0 && !protocol.null_asks_for_room);
  if (!guard.is_the_programs() || mode() != Mode::active || is_wrong) return call(count, entries);
  FilteredList list(kShape<Entry>);
  const nvmlReturn_t result =
      list.fetch([&](unsigned *all, void *room) { return call(all, static_cast<Entry *>(room)); });
  if (result != NVML_SUCCESS) return result;
  if (entries == nullptr) *count = 0;
  const bool asked = *count == 0;
  const nvmlReturn_t given = list.give(count, entries);
  if (given == NVML_SUCCESS) return *count == 0 ? protocol.if_empty : given;
  return asked ? protocol.if_asked : given;
}

}  // namespace vgpu::runtime
