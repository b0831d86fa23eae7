#include "usage_reader.h"

#include <unistd.h>

#include <cstdlib>

#include "accounting.h"
#include "guard.h"

namespace vgpu::region {

namespace {

constexpr unsigned kTries = 64;

// As aligned as the structures that will be read from it. Sizes are whole lines.
char *allocate_lines(std::size_t size) { return static_cast<char *>(std::aligned_alloc(kLine, size)); }

}  // namespace

UsageReader::UsageReader(int fd, unsigned ndev, std::uint32_t layout) : fd_(fd), ndev_(ndev) {
  copy_ = allocate_lines(usage_size(ndev, layout));
  view_ = Usage(copy_, ndev, layout);
}

UsageReader::~UsageReader() {
  std::free(copy_);
  std::free(slots_again_);
}

bool UsageReader::fetch(std::size_t offset, std::size_t size, void *target) const {
  return pread(fd_, target, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

std::uint64_t UsageReader::owner(unsigned slot) const { return view_.owner(slot).load(std::memory_order_relaxed); }

bool UsageReader::is_in_use(unsigned slot) const { return OwnerWord::unpack(owner(slot)).state != OwnerWord::kFree; }

std::uint64_t UsageReader::units(unsigned slot, unsigned dev, unsigned kind) const {
  const Lane &lane = view_.lanes(slot, dev).kinds[kind];
  return effective_units(lane_number(slot, kind), totals_[dev], lane.current.load(std::memory_order_relaxed),
                         lane.next.load(std::memory_order_relaxed));
}

// Device words and owners, guards, lanes, device words again. In this order on ARM too: the kernel takes and drops a reference to
// each page it reads, and these are full barriers.
bool UsageReader::take_picture() {
  const std::size_t slots = slots_offset(ndev_);
  if (!fetch(0, slots, copy_)) return false;
  for (unsigned dev = 0; dev < ndev_; ++dev) totals_[dev] = view_.device(dev).total.load(std::memory_order_relaxed);
  last_slot_ = kRootSlot;
  for (unsigned slot = 1; slot < kSlots; ++slot) {
    if (is_in_use(slot)) last_slot_ = slot;
  }
  if (view_.has_appendix()) {
    // Before the lanes: then a lane that is as old as its guard has not changed in between.
    const std::size_t more = slots_more_offset(ndev_);
    if (!fetch(more, (last_slot_ + 1) * slot_size(ndev_), copy_ + more)) return false;
  }
  if (!fetch(slots, (last_slot_ + 1) * slot_size(ndev_), copy_ + slots)) return false;
  constexpr std::size_t kDevices = offsetof(UsageFile, devices);
  return fetch(kDevices, slots - kDevices, copy_ + kDevices);
}

bool UsageReader::check_sums() {
  bool all = true;
  for (unsigned dev = 0; dev < ndev_; ++dev) {
    std::uint64_t sum = 0;
    for (unsigned slot = 0; slot <= last_slot_; ++slot) {
      for (unsigned kind = 0; kind < kKinds; ++kind) sum += units(slot, dev, kind);
    }
    const std::uint64_t again = view_.device(dev).total.load(std::memory_order_relaxed);
    adds_up_[dev] = again == totals_[dev] && sum == DeviceWord::unpack(again).units;
    all = all && adds_up_[dev];
  }
  return all;
}

bool UsageReader::read() {
  if (copy_ == nullptr) return false;
  Backoff backoff;
  for (unsigned attempt = 0; attempt < kTries; ++attempt) {
    if (!take_picture()) return false;
    if (check_sums()) break;
    backoff.wait();
  }
  const std::size_t size = (last_slot_ + 1) * slot_size(ndev_);
  slots_again_ = allocate_lines(size);
  return slots_again_ != nullptr && fetch(slots_offset(ndev_), size, slots_again_);
}

std::uint64_t UsageReader::idle_units(unsigned slot, unsigned dev) const {
  if (!view_.has_appendix()) return 0;
  const Word &guard = view_.slot_more(slot, dev).guards[static_cast<unsigned>(Guarded::other)];
  const Lane &lane = view_.lane(lane_number(slot, kind_of(Guarded::other)), dev);
  return region::idle_units(guard.load(std::memory_order_relaxed), lane.current.load(std::memory_order_relaxed));
}

// By a read of its own: few jobs have an SM limit, and of the rest of the devices' appendix nothing is shown.
FeedbackState UsageReader::feedback(unsigned dev) const {
  const std::size_t at = appendix_offset(ndev_) + dev * sizeof(DeviceMore) + offsetof(DeviceMore, feedback);
  std::uint64_t word = 0;
  return view_.has_appendix() && fetch(at, sizeof word, &word) ? feedback_state(word) : FeedbackState::not_asked;
}

bool UsageReader::info(unsigned slot, InfoValues *values) const {
  // Nearly always the two copies we have will do; a block that was being written is read again, a few times.
  InfoCopy first;
  InfoCopy second;
  copy_info(view_.info(slot), &first);
  copy_info(*reinterpret_cast<const SlotInfo *>(slots_again_ + slot * slot_size(ndev_)), &second);
  if (is_whole(first, second)) {
    *values = first.values;
    return true;
  }
  const auto copy_again = [&](InfoCopy *target) {
    SlotInfo block;
    return fetch(slot_offset(ndev_, slot), sizeof block, static_cast<void *>(&block)) && copy_info(block, target);
  };
  return try_read_info(copy_again, values);
}

}  // namespace vgpu::region
