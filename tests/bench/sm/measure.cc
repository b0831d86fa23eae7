#include "measure.h"

#include <atomic>
#include <fstream>
#include <thread>

#include "../pairs.h"

namespace bench {

// The kernel's own mean is over a minute, and so tells of what was before.
struct Session::Load::Watch {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> tasks{0}, looks{0};
  std::thread thread{[this] {
    while (!stop.load()) {
      // "0.20 0.18 0.12 1/80 11206": the fourth is how many run or want to, this thread among them, and how many there are.
      double skipped;
      unsigned running = 0;
      if (std::ifstream("/proc/loadavg") >> skipped >> skipped >> skipped >> running && running > 0) {
        tasks += running - 1;
        ++looks;
      }
      sleep_ns(20 * kMillisecond);
    }
  }};
};

Session::Load::Load() : watch_(std::make_unique<Watch>()) {}

Session::Load::~Load() {
  watch_->stop = true;
  watch_->thread.join();
}

double Session::Load::mean() {
  const std::uint64_t looks = watch_->looks.load();
  return looks == 0 ? 0 : static_cast<double>(watch_->tasks.load()) / static_cast<double>(looks);
}

double Session::Load::most() { return 2.0 * usable_cores(); }

void Session::row(const char *kind, const std::vector<std::string> &cells) const {
  if (table_ == nullptr) return;
  std::fputs(kind, table_);
  for (const std::string &cell : cells) std::fprintf(table_, "\t%s", cell.c_str());
  std::fputc('\n', table_);
}

void Session::wait_for_calm() const {
  constexpr unsigned kLooks = 10;  // of a second each, at a time
  for (unsigned look = 0; look < kLooks && patience_ >= kSecond; ++look, patience_ -= kSecond) {
    Load load;
    sleep_ns(kSecond);
    if (load.mean() <= Load::most()) return;
  }
}

void Session::tell_both(const std::string &what, const std::vector<double> &first, double tasks,
                        const std::vector<double> &second, double tasks_then) const {
  const auto list = [](const std::vector<double> &values) {
    std::string all;
    for (const double value : values) all += (all.empty() ? "" : ", ") + text(value, 2);
    return all;
  };
  std::printf("%s, while %.1f tasks wanted to run: %s; again, with %.1f: %s\n", what.c_str(), tasks,
              list(first).c_str(), tasks_then, list(second).c_str());
  row("again", {what, list(first), text(tasks, 1), list(second), text(tasks_then, 1)});
}

std::string text(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

void wait_until(std::uint64_t instant) {
  const std::uint64_t now = now_ns();
  if (now < instant) sleep_ns(instant - now);
}

std::vector<double> shares(const SmNode &node, const std::vector<const SmJob *> &jobs, std::uint64_t skip,
                           std::uint64_t measure) {
  wait_until(now_ns() + skip);
  const std::uint64_t from = now_ns();
  const std::vector<SmNode::Busy> before = node.busy();
  wait_until(from + measure);
  const std::vector<SmNode::Busy> after = node.busy();
  std::vector<double> result;
  for (const SmJob *job : jobs) result.push_back(job->share(before, after));
  return result;
}

}  // namespace bench
