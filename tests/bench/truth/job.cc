#include "job.h"

#include <thread>

#include "base/clock.h"

namespace vgpu::truth {

using namespace region;

Job::Job(const test::Node &node, const std::string &name, std::uint64_t limit, const Manner &manner)
    : node_(node), manner_(manner), path_(directory_.path() + "/" + name) {
  std::vector<DeviceSpec> devices = test::devices_of(node, limit);
  for (unsigned dev = 0; manner.context_known && dev < devices.size(); ++dev)
    devices[dev].context = {node.facts(dev).context_bytes, ContextSource::measured};
  Error error = Region::create(directory_.path().c_str(), name.c_str(), test::make_spec(devices));
  if (!error) error = Region::attach(path_.c_str(), Trust::root_or_self, &region_);
  if (!error) return;
  std::fprintf(stderr, "%s\n", error.text);
  std::abort();
}

Program &Job::start() {
  ranks_.push_back(std::make_unique<Program>(node_, path_));
  ranks_.back()->must("init");
  return *ranks_.back();
}

void Job::start_at_once(unsigned ranks, const std::function<void(Program &)> &work) {
  const std::size_t first = ranks_.size();
  for (unsigned i = 0; i < ranks; ++i) start();
  std::vector<std::thread> threads;
  for (std::size_t i = first; i < ranks_.size(); ++i) threads.emplace_back([&, i] { work(*ranks_[i]); });
  for (std::thread &thread : threads) thread.join();
  look();
}

unsigned Job::fill(Program &rank, std::uint64_t piece, unsigned most) {
  unsigned got = 0;
  while (got < most && rank.ask("make cuMemAlloc_v2 " + test::text(piece)).result == 0) ++got;
  return got;
}

Reading Job::read() const {
  Reading reading;
  const auto of_job = [&](pid_t pid) {
    return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto &rank) { return rank->pid() == pid; });
  };
  read_device(node_.processes(), node_.state(0), of_job, &reading);
  reading.limit = region_.memory_limit(0);
  reading.books = region_.memory_used(0);
  return reading;
}

void Job::look() { judge_.look(read(), monotonic_ns()); }

void Job::rest() {
  look();
  for (long rested = 0; rested < manner_.rest_ms; rested += 100) {
    test::sleep_ms(100);
    look();
    // One that has a context.
    std::any_of(ranks_.begin(), ranks_.end(),
                [](auto &rank) { return rank->ask("call cuCtxSynchronize").result == 0; });
  }
  if (manner_.rest_ms >= 2000) judge_.rest(read(), static_cast<unsigned>(ranks_.size()));
}

void Job::end(Judge *judge) {
  look();
  judge_.end(read());
  judge->add(judge_);
}

}  // namespace vgpu::truth
