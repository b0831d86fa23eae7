#include "model.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <queue>
#include <random>

#include "sm/batch.h"
#include "sm/election.h"
#include "sm/feedback.h"

namespace vgpu::sm::test {

using namespace region;

namespace {

constexpr std::size_t kQueue = 1024;
constexpr std::uint64_t kNvmlWindowNs = kSecond / 6;
constexpr std::uint64_t kEpochNs = 1000 * kSecond;  // the clock's first reading
constexpr std::uint64_t kMarkSynchronisationsNs = 5 * kMs;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

using EventPointer = std::shared_ptr<Event>;

// What marks.cc keeps of a batch that is closed.
struct Closed {
  Batch batch;
  EventPointer start;  // null: not measured
  bool idle_before = false;
  std::vector<EventPointer> ends;
};

struct Window {
  std::uint64_t end_ns;
  std::vector<unsigned> percents;  // of each process
};

// All that the ranks of a job share, all zeroes as in a fresh region.
struct JobState {
  unsigned percent = 0;
  std::unique_ptr<DeviceUsage> usage = std::make_unique<DeviceUsage>();
  std::unique_ptr<DeviceMore> more = std::make_unique<DeviceMore>();

  JobDevice words() const { return {*usage, more->pace, more->coverage}; }
};

struct Rank {
  Rank(unsigned in_job, unsigned in_slot, const Program &runs, unsigned numbered, std::uint64_t seed)
      : job(in_job), slot(in_slot), program(&runs), number(numbered), random(seed), loaded(runs.kernels.size()) {}

  unsigned job, slot;
  const Program *program;
  unsigned number;
  std::mt19937_64 random;
  std::unique_ptr<Costs> costs = std::make_unique<Costs>();
  Meter meter{};
  LaunchCredit credit;
  DeviceClock clock{};
  std::vector<unsigned> streams;  // of the open batch
  EventPointer start;             // of the open batch
  bool idle_before = false;
  std::deque<Closed> closed;
  Candidate candidate;
  Feedback feedback;
  // The synchronisation at hand, and what is known of those before it.
  std::optional<Batch> ending;
  std::uint64_t marked_ns = 0, sync_latency_ns = kNever;
  std::vector<EventPointer> sync_marks;

  std::uint64_t step_ns = 0;      // of a wait that is cut short to look at marks
  std::uint64_t launched_ns = 0;  // of the work at hand
  std::uint64_t due_ns = 0;
  unsigned stream = 0;
  int next_kernel = -1;
  std::uint64_t blocks = 1;
  std::vector<bool> loaded;
  bool stopped = false;
  bool waiting = false;
  enum { running, full, draining, returning } state = running;
  std::uint64_t waits = 0, launches = 0, waited_since_ns = 0, longest_wait_ns = 0;
};

class Simulation final : public Scenario::Control {
 public:
  explicit Simulation(const Scenario &scenario) : scenario_(scenario), device_(scenario.device, kEpochNs) {
    for (unsigned j = 0; j < scenario.jobs.size(); ++j) {
      const Job &job = scenario.jobs[j];
      jobs_.emplace_back().percent = job.percent;
      for (unsigned r = 0; r < job.ranks; ++r) {
        const unsigned number = device_.add_process(job.program.streams);
        ranks_.emplace_back(j, r + 1, job.program, number, scenario.seed * 1000 + number);
      }
    }
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
      if (!events_.empty()) next = std::min(next, std::max(events_.top().first, device_.now()));
      if (happened < scenario_.happenings.size())
        next = std::min(next, kEpochNs + scenario_.happenings[happened].first);
      device_.advance(next);
      for (Rank &rank : ranks_) {
        if (rank.state == Rank::full || rank.state == Rank::draining) completed(rank);
      }
      if (next == from && !started) {
        started = true;
        for (Rank &rank : ranks_) at_start[rank.number] = device_.busy_ns(rank.number), rank.waits = 0;
      }
      if (next == next_window) close_window(at_window, next), next_window += kNvmlWindowNs;
      if (next == next_step) {
        std::vector<double> sums(outcomes.size());
        for (const Rank &rank : ranks_) {
          sums[rank.job] += static_cast<double>(device_.busy_ns(rank.number) - at_step[rank.number]) * 100 / kStepNs;
          at_step[rank.number] = device_.busy_ns(rank.number);
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
      const double percent = static_cast<double>(device_.busy_ns(rank.number) - at_start[rank.number]) * 100 /
                             static_cast<double>(scenario_.measured_ns);
      JobOutcome &outcome = outcomes[rank.job];
      outcome.percent += percent;
      outcome.by_rank.push_back(percent);
      outcome.waits_per_second += static_cast<double>(rank.waits) * kSecond /
                                  static_cast<double>(scenario_.measured_ns) / scenario_.jobs[rank.job].ranks;
      const std::uint64_t waits = rank.waited_since_ns != 0 ? end - rank.waited_since_ns : 0;
      outcome.longest_wait_ns = std::max({outcome.longest_wait_ns, rank.longest_wait_ns, waits});
      outcome.launches += rank.launches;
    }
    return outcomes;
  }

  void stop(unsigned job, unsigned number) override { find(job, number).stopped = true; }
  void set_percent(unsigned job, unsigned percent) override {
    jobs_[job].percent = percent;
    wake_waiting(job);
  }
  int leader(unsigned job) override {
    const std::uint64_t word = jobs_[job].usage->lease.load();
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
  static std::uint64_t interrupted(Rank &rank) { return rank.random() % 50 == 0 ? rank.random() % (3 * kMs) : 0; }
  static std::uint64_t late(Rank &rank) { return (50 + rank.random() % 50) * kUs + interrupted(rank); }

  // ---- the program --------------------------------------------------------------------------------------------------

  void completed(Rank &rank) {
    const std::size_t pending = device_.pending(rank.number);
    if (rank.state == Rank::full ? pending >= kQueue : pending != 0) return;
    const bool drained = rank.state == Rank::draining;
    rank.state = drained ? Rank::returning : Rank::running;
    wake(rank, device_.now() + scenario_.device.lag_ns + (drained ? interrupted(rank) : 10 * kUs));
  }

  void go_on(Rank &rank) {
    if (rank.state == Rank::returning) {
      rank.state = Rank::running;
      after_synchronize(rank, device_.now());
      wake(rank, device_.now() + 10 * kUs + rank.program->pause_ns);
      return;
    }
    if (rank.state != Rank::running) return;
    rank.waiting = false;
    const Program &program = *rank.program;
    const bool synchronises =
        program.sync_each ? rank.launched_ns != 0 : program.work_ns != 0 && rank.launched_ns >= program.work_ns;
    if (synchronises) {
      rank.launched_ns = 0;
      before_synchronize(rank);
      rank.state = Rank::draining;
      completed(rank);
      return;
    }
    if (device_.pending(rank.number) >= kQueue) {
      rank.state = Rank::full;
      return;
    }
    if (rank.next_kernel < 0) {
      rank.next_kernel = static_cast<int>(rank.random() % program.kernels.size());
      rank.blocks = program.most_blocks != 0 ? 1 + rank.random() % program.most_blocks : program.per_graph;
    }
    const auto kernel = static_cast<unsigned>(rank.next_kernel);
    const unsigned stream = (rank.stream + 1) % program.streams;
    const LaunchKey key = Costs::launch_key(&program.kernels[kernel], rank.blocks, 1);
    const unsigned percent = jobs_[rank.job].percent;
    const Cost *cost = rank.costs->find(key.key);
    std::uint64_t at = device_.now();
    if (percent >= 100) {
      launch(rank, kernel, stream, at);
    } else if (cost != nullptr && spend(rank.credit, *cost)) {
      use_stream(rank, stream);
      launch(rank, kernel, stream, at);
    } else {
      read_marks(rank);
      note_charged(rank);
      const Decision decision =
          decide(jobs_[rank.job].words(), rank.meter, *rank.costs, key, rank.credit, percent, device_.now());
      if (rank.credit.open) mark(rank, at);
      note_charged(rank);
      look_at_nvml(rank);
      if (!decision.go) {
        wait(rank, decision.until_ns);
        return;
      }
      rank.idle_before = rank.closed.empty();
      rank.start = record(rank, stream, at);
      const bool ends = open_batch(rank.credit, decision);
      rank.streams = {stream};
      launch(rank, kernel, stream, at);
      rank.credit.batch.arrived_ns = at;
      if (ends) mark(rank, at);
    }
    if (program.copy_ns != 0) device_.launch(rank.number, stream, at, program.copy_ns, 0);
    if (rank.waited_since_ns != 0) {
      rank.longest_wait_ns = std::max(rank.longest_wait_ns, device_.now() - rank.waited_since_ns);
      rank.waited_since_ns = 0;
    }
    rank.step_ns = 0;
    const bool absent = program.interrupted != 0 && rank.random() % program.interrupted == 0;
    wake(rank, at + program.host_ns + (absent ? rank.random() % (4 * kMs) : 0));
  }

  void launch(Rank &rank, unsigned kernel, unsigned stream, std::uint64_t &at) {
    const Program &program = *rank.program;
    auto ns = static_cast<double>(program.kernels[kernel]);
    if (program.most_blocks != 0)
      ns = 2000 + ns * 2 * static_cast<double>(rank.blocks) / static_cast<double>(program.most_blocks);
    if (program.spread != 0) ns *= 1 + program.spread * (static_cast<double>(rank.random() % 2001) / 1000 - 1);
    rank.next_kernel = -1;
    rank.stream = stream;
    at += scenario_.device.launch_ns;
    if (!rank.loaded[kernel]) at += program.load_ns;
    rank.loaded[kernel] = true;
    const double occupancy = program.occupancy.empty() ? 1 : program.occupancy[kernel];
    for (unsigned i = 0; i < program.per_graph; ++i) {
      device_.launch(rank.number, stream, at, static_cast<std::uint64_t>(ns), occupancy);
      rank.launched_ns += static_cast<std::uint64_t>(ns);
    }
    ++rank.launches;
  }

  void wait(Rank &rank, std::uint64_t until) {
    const std::uint64_t now = device_.now();
    ++rank.waits;
    if (rank.waited_since_ns == 0) rank.waited_since_ns = now;
    rank.step_ns = rank.closed.empty() ? 100 * kMs : std::clamp(2 * rank.step_ns, 100 * kUs, 2 * kMs);
    wake(rank, std::min(until, now + rank.step_ns) + late(rank));
    rank.waiting = true;
  }

  // ---- what launch.cc and marks.cc do -------------------------------------------------------------------------------

  EventPointer record(Rank &rank, unsigned stream, std::uint64_t &at) {
    auto event = std::make_shared<Event>();
    event->host.called_ns = at;
    at += scenario_.device.event_ns;
    event->host.returned_ns = at;
    device_.record(rank.number, stream, event);
    return event;
  }

  static void use_stream(Rank &rank, unsigned stream) {
    if (std::find(rank.streams.begin(), rank.streams.end(), stream) == rank.streams.end())
      rank.streams.push_back(stream);
  }

  void mark(Rank &rank, std::uint64_t &at) {
    Closed closed = {close_batch(rank.credit), rank.start, rank.idle_before, {}};
    for (const unsigned stream : rank.streams) closed.ends.push_back(record(rank, stream, at));
    rank.start = nullptr;
    rank.closed.push_back(std::move(closed));
  }

  void settled(Rank &rank, const Batch &batch, const BatchEnd &end) {
    Batch seen = batch;
    BatchEnd at = end;
    if (scenario_.costs_are_off != 1) {
      const auto length = static_cast<double>(at.at_ns - std::min(at.at_ns, seen.arrived_ns));
      seen.arrived_ns = at.at_ns - static_cast<std::uint64_t>(length * scenario_.costs_are_off);
    }
    if (settle(jobs_[rank.job].words(), rank.meter, *rank.costs, seen, at, jobs_[rank.job].percent))
      wake_waiting(rank.job);
  }

  void read_marks(Rank &rank) {
    while (!rank.closed.empty()) {
      const Closed &closed = rank.closed.front();
      const auto seen = [&](const EventPointer &event) { return device_.sees(*event); };
      if (!std::all_of(closed.ends.begin(), closed.ends.end(), seen)) return;
      if (closed.start != nullptr) rank.clock.see(closed.start->stamp_ns, closed.start->host, closed.idle_before);
      for (const EventPointer &end : closed.ends) rank.clock.see(end->stamp_ns, end->host, false);
      BatchEnd end;
      for (const EventPointer &mark : closed.ends) {
        const std::uint64_t at = rank.clock.host_time(mark->stamp_ns);
        end.at_ns = std::max(end.at_ns, at);
        end.behind_ns = std::max(end.behind_ns, at - mark->host.returned_ns);
      }
      if (closed.start != nullptr) end.started_ns = rank.clock.host_time(closed.start->stamp_ns);
      settled(rank, closed.batch, end);
      rank.closed.pop_front();
    }
  }

  void before_synchronize(Rank &rank) {
    if (jobs_[rank.job].percent >= 100) return;
    std::uint64_t at = device_.now();
    rank.sync_marks.clear();
    if (rank.credit.open) {
      if (rank.sync_latency_ns == kNever || at - rank.marked_ns >= kMarkSynchronisationsNs) {
        rank.marked_ns = at;
        mark(rank, at);
        rank.sync_marks = rank.closed.back().ends;
      } else {
        rank.ending = close_batch(rank.credit);
      }
    }
    give_back(*jobs_[rank.job].usage, rank.credit, jobs_[rank.job].percent);
  }

  void after_synchronize(Rank &rank, std::uint64_t now) {
    if (jobs_[rank.job].percent >= 100) return;
    if (!rank.sync_marks.empty() && rank.clock.known()) {
      std::uint64_t last = 0;
      for (const EventPointer &mark : rank.sync_marks) last = std::max(last, rank.clock.host_time(mark->stamp_ns));
      rank.sync_latency_ns = std::min(rank.sync_latency_ns, now - std::min(now, last));
    }
    if (rank.ending) {
      const std::uint64_t end = std::max(rank.ending->arrived_ns, now - rank.sync_latency_ns);
      settled(rank, *rank.ending, {end});
      rank.ending.reset();
    }
    read_marks(rank);
  }

  // ---- NVML ---------------------------------------------------------------------------------------------------------

  void close_window(std::vector<std::uint64_t> &before, std::uint64_t now) {
    Window window = {now, {}};
    for (const Rank &rank : ranks_) {
      const std::uint64_t ran = device_.busy_ns(rank.number) - before[rank.number];
      before[rank.number] += ran;
      window.percents.push_back(static_cast<unsigned>(ran * 100 / kNvmlWindowNs));
    }
    windows_.push_back(window);
  }

  void note_charged(Rank &rank) { rank.feedback.note_charged(device_.now(), jobs_[rank.job].usage->charged_ns.load()); }

  void look_at_nvml(Rank &rank) {
    if (!scenario_.nvml) return;
    const std::uint64_t now = device_.now();
    DeviceUsage &usage = *jobs_[rank.job].usage;
    const LeaseClaim claim = claim_lease(usage, rank.candidate, rank.slot, now / kMs);
    if (claim == LeaseClaim::refused) return;
    if (claim == LeaseClaim::acquired) rank.feedback.reset();
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
  Device device_;
  std::deque<Rank> ranks_;
  std::deque<JobState> jobs_;
  std::deque<Window> windows_;
  std::priority_queue<std::pair<std::uint64_t, unsigned>, std::vector<std::pair<std::uint64_t, unsigned>>,
                      std::greater<>>
      events_;
};

}  // namespace

std::vector<JobOutcome> simulate(const Scenario &scenario) { return Simulation(scenario).run(); }

}  // namespace vgpu::sm::test
