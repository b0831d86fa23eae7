#include "model_device.h"

#include <algorithm>

namespace vgpu::sm::test {

namespace {

constexpr std::uint64_t kSliceNs = 2'000'000;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

}  // namespace

unsigned Device::add_process(unsigned streams) {
  processes_.emplace_back().streams.resize(streams);
  return static_cast<unsigned>(processes_.size() - 1);
}

void Device::launch(unsigned process, unsigned stream, std::uint64_t at_ns, std::uint64_t kernel_ns, double occupancy) {
  processes_[process].streams[stream].push_back(
      {at_ns + habits_.arrival_ns, std::max<std::uint64_t>(kernel_ns, 1), occupancy, ++numbered_, nullptr});
  ++processes_[process].pending;
  advance(now_ns_);
}

void Device::record(unsigned process, unsigned stream, const std::shared_ptr<Event> &event) {
  processes_[process].streams[stream].push_back(
      {event->host.returned_ns + habits_.arrival_ns, 0, 0, ++numbered_, event});
  advance(now_ns_);
}

bool Device::runnable(const Process &process) const {
  return process.pending != 0 && std::any_of(process.streams.begin(), process.streams.end(), [&](const auto &stream) {
           return !stream.empty() && stream.front().event == nullptr && stream.front().arrives_ns <= now_ns_;
         });
}

bool Device::others_wait() const {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (static_cast<int>(i) != current_ && runnable(processes_[i])) return true;
  }
  return false;
}

std::uint64_t Device::next_ns() const {
  std::uint64_t next = kNever;
  for (const Process &process : processes_) {
    for (const auto &stream : process.streams) {
      if (!stream.empty() && stream.front().arrives_ns > now_ns_) next = std::min(next, stream.front().arrives_ns);
    }
  }
  if (current_ < 0) return next;
  for (const Item *item : running_) next = std::min(next, now_ns_ + item->remaining_ns);
  return others_wait() ? std::min(next, now_ns_ + slice_left_ns_) : next;
}

void Device::advance(std::uint64_t to_ns) {
  const std::uint64_t ran = to_ns - now_ns_;
  if (current_ >= 0 && !running_.empty()) {
    const bool computes =
        std::any_of(running_.begin(), running_.end(), [](const Item *item) { return item->occupancy > 0; });
    if (computes) processes_[static_cast<unsigned>(current_)].busy_ns += ran;
    for (Item *item : running_) item->remaining_ns -= std::min(ran, item->remaining_ns);
    slice_left_ns_ -= std::min(slice_left_ns_, ran);
  }
  now_ns_ = to_ns;
  finish_heads();
  choose_process();
  choose_kernels();
}

void Device::finish_heads() {
  for (Process &process : processes_) {
    for (auto &stream : process.streams) {
      while (!stream.empty() && stream.front().arrives_ns <= now_ns_ && stream.front().remaining_ns == 0) {
        if (stream.front().event != nullptr) {
          stream.front().event->stamp_ns = now_ns_;
        } else {
          --process.pending;
        }
        stream.pop_front();
      }
    }
  }
}

void Device::choose_process() {
  const bool idle = current_ < 0 || !runnable(processes_[static_cast<unsigned>(current_)]);
  if (idle || (slice_left_ns_ == 0 && others_wait())) {
    current_ = -1;
    const std::size_t count = processes_.size();
    for (std::size_t step = 1; step <= count && current_ < 0; ++step) {
      const std::size_t i = (static_cast<std::size_t>(last_) + step) % count;
      if (runnable(processes_[i])) current_ = last_ = static_cast<int>(i);
    }
    slice_left_ns_ = kSliceNs;
  }
  if (slice_left_ns_ == 0) slice_left_ns_ = kSliceNs;
}

void Device::choose_kernels() {
  running_.clear();
  if (current_ < 0) return;
  for (auto &stream : processes_[static_cast<unsigned>(current_)].streams) {
    if (!stream.empty() && stream.front().event == nullptr && stream.front().arrives_ns <= now_ns_)
      running_.push_back(&stream.front());
  }
  std::sort(running_.begin(), running_.end(), [](const Item *a, const Item *b) { return a->number < b->number; });
  double occupied = 0;
  std::size_t fit = 0;
  for (; fit < running_.size() && fit < habits_.concurrent; ++fit) {
    occupied += running_[fit]->occupancy;
    if (fit != 0 && occupied > 1) break;
  }
  running_.resize(fit);
}

}  // namespace vgpu::sm::test
