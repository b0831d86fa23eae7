#include "filtered_list.h"

#include <cstdlib>
#include <cstring>

#include "job_processes.h"

namespace vgpu::runtime {

namespace {

constexpr unsigned char kUntouched = 0xA5;  // the last byte of no size, identifier or percentage
constexpr unsigned kMostEntries = 1u << 20;

}  // namespace

FilteredList::~FilteredList() { std::free(entries_); }

bool FilteredList::make_room(unsigned entries) {
  std::free(entries_);
  room_ = entries < kMostEntries ? entries : kMostEntries;
  entries_ = static_cast<unsigned char *>(std::malloc(room_ * kMostBytes));
  if (entries_ != nullptr) std::memset(entries_, kUntouched, room_ * kMostBytes);
  return entries_ != nullptr;
}

void FilteredList::measure() {
  if (count_ > room_) count_ = room_;
  if (count_ == 0) return;
  std::size_t written = room_ * kMostBytes;
  while (written > 0 && entries_[written - 1] == kUntouched) --written;
  stride_ = (written + count_ - 1) / count_;
  stride_ = (stride_ + shape_.alignment - 1) / shape_.alignment * shape_.alignment;
  // Less than a whole process each, or more than there is room for: not a list.
  if (stride_ < shape_.pid_offset + sizeof(unsigned) || stride_ > kMostBytes) count_ = 0;
}

unsigned FilteredList::pid(unsigned index) const {
  unsigned pid = 0;
  std::memcpy(&pid, entries_ + index * stride_ + shape_.pid_offset, sizeof pid);
  return pid;
}

void FilteredList::keep_job_processes() {
  JobProcesses job;
  for (unsigned i = 0; i < count_; ++i) job.see(pid(i));
  unsigned kept = 0;
  for (unsigned i = 0; i < count_; ++i) {
    if (job.has(pid(i))) std::memmove(entries_ + kept++ * stride_, entries_ + i * stride_, stride_);
  }
  count_ = kept;
}

nvmlReturn_t FilteredList::give(unsigned *count, void *entries) const {
  const bool fits = count_ <= *count;
  *count = count_;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (count_ != 0) std::memcpy(entries, entries_, count_ * stride_);
  return NVML_SUCCESS;
}

}  // namespace vgpu::runtime
