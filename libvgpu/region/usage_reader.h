// Reads a usage file that others are changing, by pread alone: its owner may truncate it at any moment.
#pragma once

#include "layout.h"
#include "seqlock.h"
#include "sm_words.h"

namespace vgpu::region {

class UsageReader {
 public:
  UsageReader(int fd, unsigned ndev, std::uint32_t layout);
  ~UsageReader();
  UsageReader(const UsageReader &) = delete;
  UsageReader &operator=(const UsageReader &) = delete;

  // Takes pictures until one is consistent on every device; after 64 tries the last one has to do.
  // False: the file is shorter than it was, or there is no memory.
  bool read();

  // The device word did not change while the lanes were read, and they add up to it. The sum also gives away words
  // that were torn while they were copied.
  bool adds_up(unsigned dev) const { return adds_up_[dev]; }
  std::uint64_t total(unsigned dev) const { return totals_[dev]; }
  // The copy. Its device words are of the end of the picture, total() is of its beginning.
  const Usage &view() const { return view_; }
  std::uint64_t owner(unsigned slot) const;
  bool is_in_use(unsigned slot) const;
  std::uint64_t units(unsigned slot, unsigned dev, unsigned kind) const;
  // False: the slot's rank died or was stopped while it wrote.
  bool info(unsigned slot, InfoValues *values) const;
  // What of the lane Kind::other is blocks that nobody uses, and may be given up at any time.
  std::uint64_t idle_units(unsigned slot, unsigned dev) const;
  FeedbackState feedback(unsigned dev) const;

 private:
  bool fetch(std::size_t offset, std::size_t size, void *target) const;
  bool take_picture();
  bool check_sums();

  int fd_;
  unsigned ndev_;
  char *copy_ = nullptr;  // laid out as the file
  Usage view_;
  std::uint64_t totals_[kMaxDevices] = {};
  bool adds_up_[kMaxDevices] = {};
  unsigned last_slot_ = 0;
  char *slots_again_ = nullptr;  // a second copy of the slots, for the informational blocks
};

}  // namespace vgpu::region
