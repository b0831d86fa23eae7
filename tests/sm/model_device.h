// The made-up device of model.h: streams of kernels and events, in the order in which they arrive.
//
// It runs kernels of one process at a time, as many beside each other as their occupancy and `concurrent` allow, and takes
// turns between processes. An event is stamped when its stream comes there, whether or not the device has time for the
// stream.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "sm/device_clock.h"

namespace vgpu::sm::test {

// How far a device is from one that does at once what it is told.
struct Habits {
  std::uint64_t launch_ns = 3'000;  // what a launch takes of the launching thread
  std::uint64_t event_ns = 0;       // the same of recording an event
  std::uint64_t arrival_ns = 0;     // how long work takes to reach the device
  std::uint64_t lag_ns = 0;         // how much later than the device the host sees that work has ended
  unsigned concurrent = 1;          // kernels that run beside each other, at most
};
inline constexpr Habits kIdeal = {}, kHardware = {3'000, 2'500, 4'000, 6'000, 8};

struct Event {
  std::uint64_t stamp_ns = 0;  // 0: the device has not come to it
  Recorded host;
};

class Device {
 public:
  Device(const Habits &habits, std::uint64_t now_ns) : habits_(habits), now_ns_(now_ns) {}

  unsigned add_process(unsigned streams);
  // `at_ns` is when the host's call returned. An occupancy of 0 is a copy's: it takes its time and computes nothing.
  void launch(unsigned process, unsigned stream, std::uint64_t at_ns, std::uint64_t kernel_ns, double occupancy);
  void record(unsigned process, unsigned stream, const std::shared_ptr<Event> &event);

  std::uint64_t now() const { return now_ns_; }
  // When something happens by itself.
  std::uint64_t next_ns() const;
  void advance(std::uint64_t to_ns);

  bool sees(const Event &event) const { return event.stamp_ns != 0 && event.stamp_ns + habits_.lag_ns <= now_ns_; }
  std::size_t pending(unsigned process) const { return processes_[process].pending; }  // kernels
  std::uint64_t busy_ns(unsigned process) const { return processes_[process].busy_ns; }

 private:
  struct Item {
    std::uint64_t arrives_ns;
    std::uint64_t remaining_ns;
    double occupancy;
    std::uint64_t number;
    std::shared_ptr<Event> event;  // null: a kernel
  };
  struct Process {
    std::vector<std::deque<Item>> streams;
    std::size_t pending = 0;
    std::uint64_t busy_ns = 0;
  };

  bool runnable(const Process &process) const;
  bool others_wait() const;
  void finish_heads();
  void choose_process();
  void choose_kernels();

  Habits habits_;
  std::uint64_t now_ns_;
  std::vector<Process> processes_;
  std::vector<Item *> running_;
  int current_ = -1;
  int last_ = 0;
  std::uint64_t slice_left_ns_ = 0;
  std::uint64_t numbered_ = 0;
};

}  // namespace vgpu::sm::test
