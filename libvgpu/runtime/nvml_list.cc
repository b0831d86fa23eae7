#include "nvml_list.h"

#include <cstdlib>
#include <cstring>

namespace vgpu::runtime {

namespace {

constexpr unsigned char kUntouched = 0xA5;  // the last byte of no size, identifier or percentage
constexpr unsigned kMostEntries = 1u << 20;

}  // namespace

NvmlList::~NvmlList() { std::free(entries_); }

bool NvmlList::make_room(unsigned entries) {
  std::free(entries_);
  room_ = entries < kMostEntries ? entries : kMostEntries;
  entries_ = static_cast<unsigned char *>(std::malloc(room_ * kMostBytes));
  if (entries_ != nullptr) std::memset(entries_, kUntouched, room_ * kMostBytes);
  return entries_ != nullptr;
}

void NvmlList::measure() {
  if (count_ > room_) count_ = room_;
  if (count_ == 0) return;
  std::size_t written = room_ * kMostBytes;
  while (written > 0 && entries_[written - 1] == kUntouched) --written;
  stride_ = (written + count_ - 1) / count_;
  stride_ = (stride_ + shape_.alignment - 1) / shape_.alignment * shape_.alignment;
  // Less than a whole process each, or more than there is room for: not a list.
  if (stride_ < shape_.pid_offset + sizeof(unsigned) || stride_ > kMostBytes) count_ = 0;
}

unsigned NvmlList::pid(unsigned index) const {
  unsigned pid = 0;
  std::memcpy(&pid, entries_ + index * stride_ + shape_.pid_offset, sizeof pid);
  return pid;
}

void NvmlList::move(unsigned to, unsigned from) {
  std::memmove(entries_ + to * stride_, entries_ + from * stride_, stride_);
}

void NvmlList::copy_to(void *entries) const {
  if (count_ != 0) std::memcpy(entries, entries_, count_ * stride_);
}

}  // namespace vgpu::runtime
