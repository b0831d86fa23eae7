// Compares what a device holds for a job with the job's limit and its books, and remembers the worst.
//
// What a device holds beyond the limit is `over` if a call announced it, and `launch over` if launches brought it, whose
// code and local memory nobody can know before: what they brought since the device was last within the limit. Whatever is
// granted on top of that is over again.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vgpu::truth {

// One look at one device.
struct Reading {
  std::uint64_t limit = 0;
  std::uint64_t books = 0;     // what the region says is used
  std::uint64_t held = 0;      // what the device says the job's processes hold
  std::uint64_t launched = 0;  // the part of that which launches brought
};

class Judge {
 public:
  static constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

  // While no hooked call is in progress.
  void look(const Reading &reading, std::uint64_t now_ns) {
    const std::uint64_t over = beyond_limit(reading);
    note_growth(reading, over);
    const std::uint64_t grown = reading.launched > launched_within_ ? reading.launched - launched_within_ : 0;
    const std::uint64_t by_launch = std::min(over, grown);
    over_bytes_ = std::max(over_bytes_, over - by_launch);
    launch_over_bytes_ = std::max(launch_over_bytes_, by_launch);
    note_unseen(by_launch != 0 && reading.books < reading.held, now_ns);
  }

  // While one may be: nothing is judged, for a call may take back what it should not have had.
  void look_during_call(const Reading &reading) {
    const std::uint64_t over = beyond_limit(reading);
    note_growth(reading, over);
    over_in_call_bytes_ = std::max(over_in_call_bytes_, over);
  }

  // When nothing has changed for two seconds: 3 is all that the books may be above the device, which is the larger of 3 % and
  // 32 MiB plus 2 MiB for each rank but the first.
  void rest(const Reading &reading, unsigned ranks) {
    if (reading.held == 0 || reading.books <= reading.held) return;
    const std::uint64_t blocks = 32 * kMiB + 2 * kMiB * (std::max(ranks, 1u) - 1);
    const double allowed = std::max(0.03 * static_cast<double>(reading.held), static_cast<double>(blocks));
    waste_percent_ = std::max(waste_percent_, 3 * static_cast<double>(reading.books - reading.held) / allowed);
  }

  // At the end of a program that wanted all it could get.
  void end(const Reading &reading) {
    if (reading.limit > reading.held) unused_bytes_ = std::max(unused_bytes_, reading.limit - reading.held);
  }

  void add(const Judge &other) {
    unused_bytes_ = std::max(unused_bytes_, other.unused_bytes_);
    over_bytes_ = std::max(over_bytes_, other.over_bytes_);
    over_in_call_bytes_ = std::max(over_in_call_bytes_, other.over_in_call_bytes_);
    launch_over_bytes_ = std::max(launch_over_bytes_, other.launch_over_bytes_);
    growth_bytes_ = std::max(growth_bytes_, other.growth_bytes_);
    unseen_ns_ = std::max(unseen_ns_, other.unseen_ns_);
    waste_percent_ = std::max(waste_percent_, other.waste_percent_);
  }

  std::uint64_t over_bytes() const { return over_bytes_; }
  std::uint64_t over_in_call_bytes() const { return over_in_call_bytes_; }
  std::uint64_t launch_over_bytes() const { return launch_over_bytes_; }
  // The most that launches brought between two looks: one launch, if that is how often somebody looks.
  std::uint64_t growth_bytes() const { return growth_bytes_; }
  // For how long at most the books had less than the device while a launch had put it over the limit.
  double launch_over_seconds() const { return static_cast<double>(unseen_ns_) / 1e9; }
  double waste_percent() const { return waste_percent_; }
  std::uint64_t unused_bytes() const { return unused_bytes_; }

 private:
  static std::uint64_t beyond_limit(const Reading &reading) {
    return reading.held > reading.limit ? reading.held - reading.limit : 0;
  }

  void note_growth(const Reading &reading, std::uint64_t over) {
    if (reading.launched > launched_) growth_bytes_ = std::max(growth_bytes_, reading.launched - launched_);
    launched_ = reading.launched;
    if (over == 0) launched_within_ = reading.launched;
  }

  void note_unseen(bool unseen, std::uint64_t now_ns) {
    if (unseen && unseen_since_ns_ == 0) unseen_since_ns_ = now_ns;
    if (!unseen) unseen_since_ns_ = 0;
    if (unseen) unseen_ns_ = std::max(unseen_ns_, now_ns - unseen_since_ns_);
  }

  std::uint64_t launched_ = 0;         // what launches had brought at the last look
  std::uint64_t launched_within_ = 0;  // what launches had brought when the device was last within the limit
  std::uint64_t unseen_since_ns_ = 0;
  std::uint64_t over_bytes_ = 0, over_in_call_bytes_ = 0, launch_over_bytes_ = 0, unseen_ns_ = 0, unused_bytes_ = 0,
                growth_bytes_ = 0;
  double waste_percent_ = 0;
};

}  // namespace vgpu::truth
