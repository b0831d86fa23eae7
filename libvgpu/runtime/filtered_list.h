// A list of processes that NVML gives, without those that are not the job's. What is left of it is handed on as the driver
// wrote it: a program that runs on a driver which writes more than the header says expects just that.
#pragma once

#include "driver/nvml_call.h"
#include "nvml_list.h"
#include "runtime.h"

namespace vgpu::runtime {

class FilteredList : public NvmlList {
 public:
  using NvmlList::NvmlList;

  // Fills the list by call(count, entries), which is NVML's own, and keeps what is the job's.
  template <typename Call>
  nvmlReturn_t fetch(Call call) {
    const nvmlReturn_t result = NvmlList::fetch(call);
    if (result == NVML_SUCCESS) keep_job_processes();
    return result;
  }

  // The end of every such call of NVML's: all of it, or how much room it needs.
  nvmlReturn_t give(unsigned *room, void *entries) const;

 private:
  void keep_job_processes();
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
