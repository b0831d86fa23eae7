#include "model.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <random>

#include "sm/election.h"
#include "sm/feedback.h"
#include "sm/meter.h"

namespace vgpu::sm::test {

using namespace region;

namespace {

constexpr std::uint64_t kSliceNs = 2 * kMs;
constexpr std::uint64_t kLaunchNs = 3 * kUs;  // what a launch takes of the launching thread
constexpr std::size_t kQueue = 1024;
constexpr std::uint64_t kNvmlWindowNs = kSecond / 6;
constexpr std::uint64_t kEpochNs = 1000 * kSecond;  // the clock's first reading
constexpr unsigned kMostMeasurements = 16;

struct Sample {
  Cost *cost;
  std::uint64_t charged_ns;
  std::uint64_t held_ns;
  bool alone;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
};

struct Item {
  std::uint64_t remaining_ns;
  unsigned stream;
  Sample *starts = nullptr;       // whose first event is before this kernel
  Sample *ends = nullptr;         // whose second event is behind it
  Sample *starts_next = nullptr;  // whose first event is the next thing in the stream
};

// A process as the device knows it.
struct Process {
  std::deque<Item> queue;
  std::vector<unsigned> stream_pending;
  std::vector<Item *> stream_last;
  std::uint64_t busy_ns = 0;
};

class Device {
 public:
  explicit Device(std::vector<Process> &processes) : processes_(processes) {}

  std::uint64_t now() const { return now_; }
  void start_at(std::uint64_t now) { now_ = now; }

  // When something happens by itself.
  std::uint64_t next_ns() const {
    if (current_ < 0) return ~std::uint64_t{0};
    const std::uint64_t left = processes_[static_cast<unsigned>(current_)].queue.front().remaining_ns;
    return now_ + (others_wait() ? std::min(left, slice_left_) : left);
  }

  // The process whose kernel came to its end, if one did.
  int advance(std::uint64_t to) {
    if (current_ < 0) {
      now_ = to;
      return -1;
    }
    Process &process = processes_[static_cast<unsigned>(current_)];
    Item &item = process.queue.front();
    const std::uint64_t ran = to - now_;
    now_ = to;
    process.busy_ns += ran;
    item.remaining_ns -= ran;
    slice_left_ -= std::min(slice_left_, ran);
    int finished = -1;
    if (item.remaining_ns == 0) {
      finished = current_;
      --process.stream_pending[item.stream];
      if (item.ends != nullptr) item.ends->end_ns = now_;
      if (item.starts_next != nullptr) item.starts_next->start_ns = now_;
      process.queue.pop_front();
    }
    if (process.queue.empty() || (slice_left_ == 0 && others_wait())) next_process();
    if (slice_left_ == 0) slice_left_ = kSliceNs;
    return finished;
  }

  void launch(unsigned number, const Item &item) {
    Process &process = processes_[number];
    if (item.starts != nullptr) {
      if (process.stream_pending[item.stream] == 0) {
        item.starts->start_ns = now_;
      } else {
        process.stream_last[item.stream]->starts_next = item.starts;
      }
    }
    ++process.stream_pending[item.stream];
    process.queue.push_back(item);
    process.stream_last[item.stream] = &process.queue.back();
    if (current_ < 0) next_process();
  }

 private:
  bool others_wait() const {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (static_cast<int>(i) != current_ && !processes_[i].queue.empty()) return true;
    }
    return false;
  }
  void next_process() {
    const std::size_t count = processes_.size();
    const std::size_t from = current_ < 0 ? count - 1 : static_cast<std::size_t>(current_);
    current_ = -1;
    for (std::size_t step = 1; step <= count; ++step) {
      const std::size_t i = (from + step) % count;
      if (processes_[i].queue.empty()) continue;
      current_ = static_cast<int>(i);
      slice_left_ = kSliceNs;
      return;
    }
  }

  std::vector<Process> &processes_;
  std::uint64_t now_ = 0;
  int current_ = -1;
  std::uint64_t slice_left_ = 0;
};

struct Window {
  std::uint64_t end_ns;
  std::vector<unsigned> percents;  // of each process
};

struct Rank {
  Rank(unsigned in_job, unsigned in_slot, const Program &runs, Process &known_as, unsigned numbered, std::uint64_t seed)
      : job(in_job), slot(in_slot), program(&runs), process(&known_as), number(numbered), random(seed) {}

  unsigned job, slot;
  const Program *program;
  Process *process;
  unsigned number;
  std::mt19937_64 random;
  std::unique_ptr<Costs> costs = std::make_unique<Costs>();
  Meter meter{};
  LaunchCredit credit;
  Candidate candidate;
  std::uint32_t revisions = 0;
  Feedback feedback;
  std::deque<std::unique_ptr<Sample>> samples;
  std::uint64_t step_ns = 0;      // of a wait that is cut short to look at measurements
  std::uint64_t launched_ns = 0;  // of the work at hand
  std::uint64_t due_ns = 0;
  unsigned stream = 0;
  int next_kernel = -1;
  bool stopped = false;
  bool waiting = false;
  enum { running, full, draining } state = running;
  std::uint64_t waits = 0;
};

class Simulation final : public Scenario::Control {
 public:
  explicit Simulation(const Scenario &scenario) : scenario_(scenario), device_(processes_) {
    std::size_t ranks = 0;
    for (const Job &job : scenario.jobs) ranks += job.ranks;
    processes_.resize(ranks);
    unsigned number = 0;
    for (unsigned j = 0; j < scenario.jobs.size(); ++j) {
      const Job &job = scenario.jobs[j];
      // On a line of its own, all zeroes, as in a fresh region.
      usages_.push_back(std::make_unique<DeviceUsage>());
      percents_.push_back(job.percent);
      for (unsigned r = 0; r < job.ranks; ++r, ++number) {
        Process &process = processes_[number];
        process.stream_pending.resize(job.program.streams);
        process.stream_last.resize(job.program.streams);
        ranks_.emplace_back(j, r + 1, job.program, process, number, scenario.seed * 1000 + number);
      }
    }
    device_.start_at(kEpochNs);
    for (Rank &rank : ranks_) wake(rank, kEpochNs + rank.random() % kMs);
  }

  std::vector<JobOutcome> run() {
    const std::uint64_t from = kEpochNs + scenario_.warm_up_ns, end = from + scenario_.measured_ns;
    std::vector<JobOutcome> outcomes(scenario_.jobs.size());
    std::vector<std::uint64_t> at_start(ranks_.size()), at_window(ranks_.size()), at_step(ranks_.size());
    std::uint64_t next_window = kEpochNs + kNvmlWindowNs, next_step = kEpochNs + kStepNs;
    std::size_t happened = 0;
    bool started = false;
    for (;;) {
      std::uint64_t next = std::min({end, next_window, next_step, device_.next_ns()});
      if (!started) next = std::min(next, from);
      if (!events_.empty()) next = std::min(next, events_.top().first);
      if (happened < scenario_.happenings.size())
        next = std::min(next, kEpochNs + scenario_.happenings[happened].first);
      const int finished = device_.advance(next);
      if (finished >= 0) completed(ranks_[static_cast<unsigned>(finished)]);
      if (next == from && !started) {
        started = true;
        for (Rank &rank : ranks_) at_start[rank.number] = rank.process->busy_ns, rank.waits = 0;
      }
      if (next == next_window) close_window(at_window, next), next_window += kNvmlWindowNs;
      if (next == next_step) {
        std::vector<double> sums(outcomes.size());
        for (const Rank &rank : ranks_) {
          sums[rank.job] += static_cast<double>(rank.process->busy_ns - at_step[rank.number]) * 100 / kStepNs;
          at_step[rank.number] = rank.process->busy_ns;
        }
        for (std::size_t j = 0; j < sums.size(); ++j) outcomes[j].over_time.push_back(sums[j]);
        next_step += kStepNs;
      }
      if (next == end) break;
      while (happened < scenario_.happenings.size() && next == kEpochNs + scenario_.happenings[happened].first) {
        scenario_.happenings[happened++].second(*this);
      }
      while (!events_.empty() && events_.top().first <= next) {
        Rank &rank = ranks_[events_.top().second];
        const std::uint64_t at = events_.top().first;
        events_.pop();
        if (!rank.stopped && rank.due_ns == at) go_on(rank);
      }
    }
    for (const Rank &rank : ranks_) {
      const double percent = static_cast<double>(rank.process->busy_ns - at_start[rank.number]) * 100 /
                             static_cast<double>(scenario_.measured_ns);
      JobOutcome &outcome = outcomes[rank.job];
      outcome.percent += percent;
      outcome.by_rank.push_back(percent);
      outcome.waits_per_second += static_cast<double>(rank.waits) * kSecond /
                                  static_cast<double>(scenario_.measured_ns) / scenario_.jobs[rank.job].ranks;
    }
    return outcomes;
  }

  void stop(unsigned job, unsigned number) override { find(job, number).stopped = true; }
  void set_percent(unsigned job, unsigned percent) override {
    percents_[job] = percent;
    wake_waiting(job);
  }
  int leader(unsigned job) override {
    const std::uint64_t word = usages_[job]->lease.load();
    return word == 0 ? -1 : static_cast<int>(region::LeaseWord::unpack(word).slot) - 1;
  }

 private:
  Rank &find(unsigned job, unsigned number) {
    for (Rank &rank : ranks_) {
      if (rank.job == job && rank.slot == number + 1) return rank;
    }
    std::abort();
  }

  // Each rank has one event to come at most, the last one made.
  void wake(Rank &rank, std::uint64_t at) {
    rank.due_ns = at;
    events_.emplace(at, rank.number);
  }
  void wake_waiting(unsigned job) {
    for (Rank &rank : ranks_) {
      if (rank.job == job && rank.waiting) wake(rank, std::min(rank.due_ns, device_.now() + late(rank)));
    }
  }

  // Late by the kernel's slack, and now and then by a turn of somebody else's on the core.
  std::uint64_t late(Rank &rank) {
    return (50 + rank.random() % 50) * kUs + (rank.random() % 50 == 0 ? rank.random() % (3 * kMs) : 0);
  }

  void completed(Rank &rank) {
    const bool goes_on = (rank.state == Rank::full && rank.process->queue.size() < kQueue) ||
                         (rank.state == Rank::draining && rank.process->queue.empty());
    if (!goes_on) return;
    const bool drained = rank.state == Rank::draining;
    rank.state = Rank::running;
    wake(rank, device_.now() + 10 * kUs + (drained ? rank.program->pause_ns : 0));
  }

  void go_on(Rank &rank) {
    if (rank.state != Rank::running) return;
    rank.waiting = false;
    const Program &program = *rank.program;
    if (program.work_ns != 0 && rank.launched_ns >= program.work_ns) {
      rank.launched_ns = 0;
      if (percents_[rank.job] < 100) {
        look_at_samples(rank, percents_[rank.job]);
        give_back(*usages_[rank.job], rank.credit, percents_[rank.job]);
      }
      if (rank.process->queue.empty()) {
        wake(rank, device_.now() + program.pause_ns);
      } else {
        rank.state = Rank::draining;
      }
      return;
    }
    if (rank.process->queue.size() >= kQueue) {
      rank.state = Rank::full;
      return;
    }
    if (rank.next_kernel < 0) rank.next_kernel = pick(rank);
    const auto kernel = static_cast<unsigned>(rank.next_kernel);
    Cost &cost = rank.costs->find(&program.kernels[kernel], program.per_graph, 1);
    const unsigned percent = percents_[rank.job];
    if (percent >= 100 || spend(rank.credit, 0, cost)) {
      launch(rank, kernel, nullptr);
      return;
    }
    look_at_samples(rank, percent);
    const std::uint64_t now = device_.now();
    DeviceUsage &usage = *usages_[rank.job];
    rank.feedback.note_charged(now, usage.charged_ns.load());
    look_at_nvml(rank);
    const Decision decision = decide(usage, rank.meter, cost, rank.credit, percent, now);
    if (!decision.go) {
      wait(rank, decision.until_ns);
      return;
    }
    rank.feedback.note_charged(now, usage.charged_ns.load());
    rank.step_ns = 0;
    Sample *sample = nullptr;
    if (decision.measure && rank.samples.size() < kMostMeasurements) {
      rank.samples.push_back(
          std::make_unique<Sample>(Sample{&cost, decision.charged_ns, decision.held_ns, decision.alone, 0, 0}));
      sample = rank.samples.back().get();
      cost.under_way.fetch_add(1);
    } else {
      release_hold(usage, decision.held_ns);
    }
    launch(rank, kernel, sample);
  }

  unsigned pick(Rank &rank) { return static_cast<unsigned>(rank.random() % rank.program->kernels.size()); }

  void launch(Rank &rank, unsigned kernel, Sample *sample) {
    const Program &program = *rank.program;
    double ns = static_cast<double>(program.kernels[kernel]);
    if (program.spread != 0) {
      ns *= 1 + program.spread * (static_cast<double>(rank.random() % 2001) / 1000 - 1);
    }
    rank.next_kernel = -1;
    rank.stream = (rank.stream + 1) % program.streams;
    for (unsigned i = 0; i < program.per_graph; ++i) {
      const bool first = i == 0, last = i + 1 == program.per_graph;
      device_.launch(rank.number, {static_cast<std::uint64_t>(ns), rank.stream, first ? sample : nullptr,
                                   last ? sample : nullptr, nullptr});
      rank.launched_ns += static_cast<std::uint64_t>(ns);
    }
    wake(rank, device_.now() + kLaunchNs);
  }

  void look_at_samples(Rank &rank, unsigned percent) {
    for (std::size_t i = 0; i < rank.samples.size();) {
      const Sample sample = *rank.samples[i];
      if (sample.end_ns == 0) {
        ++i;
        continue;
      }
      rank.samples.erase(rank.samples.begin() + static_cast<std::ptrdiff_t>(i));
      const auto elapsed =
          static_cast<std::uint64_t>(static_cast<double>(sample.end_ns - sample.start_ns) * scenario_.costs_are_off);
      if (learn(*usages_[rank.job], *rank.costs, *sample.cost, {elapsed, sample.charged_ns, sample.alone, false},
                percent))
        wake_waiting(rank.job);
      sample.cost->under_way.fetch_sub(1);
      release_hold(*usages_[rank.job], sample.held_ns);
    }
  }

  void wait(Rank &rank, std::uint64_t until) {
    const std::uint64_t now = device_.now();
    ++rank.waits;
    const bool learning = std::any_of(rank.samples.begin(), rank.samples.end(),
                                      [](const auto &sample) { return sample->cost->estimate_ns.load() == 0; });
    rank.step_ns = learning ? std::clamp(2 * rank.step_ns, 100 * kUs, 2 * kMs) : 100 * kMs;
    wake(rank, std::min(until, now + rank.step_ns) + late(rank));
    rank.waiting = true;
  }

  void close_window(std::vector<std::uint64_t> &before, std::uint64_t now) {
    Window window = {now, {}};
    for (const Rank &rank : ranks_) {
      const std::uint64_t ran = rank.process->busy_ns - before[rank.number];
      before[rank.number] = rank.process->busy_ns;
      window.percents.push_back(static_cast<unsigned>(ran * 100 / kNvmlWindowNs));
    }
    windows_.push_back(window);
  }

  void look_at_nvml(Rank &rank) {
    const std::uint64_t now = device_.now();
    DeviceUsage &usage = *usages_[rank.job];
    const LeaseClaim claim = claim_lease(usage, rank.candidate, rank.slot, now / kMs);
    if (claim == LeaseClaim::refused) return;
    if (claim == LeaseClaim::acquired) rank.feedback.reset();
    if (rank.revisions != rank.costs->revisions()) {
      rank.revisions = rank.costs->revisions();
      rank.feedback.forget(now);
    }
    const Window *seen = nullptr;
    for (const Window &window : windows_) {
      if (window.end_ns + scenario_.nvml_lag_ns <= now) seen = &window;
    }
    region::TrimWord trim = region::TrimWord::unpack(usage.trim.load());
    const bool shared = scenario_.jobs.size() > 1;
    if (seen != nullptr) {
      Observation all = {seen->end_ns, 0, 0, rank.costs->typical_ns(), shared};
      for (const Rank &other : ranks_) {
        if (other.job == rank.job) all.percent += seen->percents[other.number], ++all.processes;
      }
      trim.ratio = rank.feedback.observe(all, now, trim.ratio);
    }
    publish(usage, rank.candidate, trim.ratio, shared);
  }

  const Scenario &scenario_;
  std::vector<Process> processes_;
  Device device_;
  std::deque<Rank> ranks_;
  std::vector<std::unique_ptr<DeviceUsage>> usages_;
  std::vector<unsigned> percents_;
  std::deque<Window> windows_;
  std::priority_queue<std::pair<std::uint64_t, unsigned>, std::vector<std::pair<std::uint64_t, unsigned>>,
                      std::greater<>>
      events_;
};

}  // namespace

std::vector<JobOutcome> simulate(const Scenario &scenario) { return Simulation(scenario).run(); }

}  // namespace vgpu::sm::test
